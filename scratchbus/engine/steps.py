"""Conversations with the engine, written once and driven sync or async.

A conversation is a generator: it yields a request, is sent the reply, and returns its result. It never awaits and
never blocks. `Engine` and `AsyncEngine` drive it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from scratchbus.domain.position import Position

if TYPE_CHECKING:
    from scratchbus.engine.queues import Queues

T = TypeVar("T")


class Joint(NamedTuple):
    """How the only command of a call may be joined with others that begin with the same `prefix`, the very object.

    One command is sent that begins with it and goes on with the arguments of each. `split` returns the reply for each,
    from the reply of the whole and how many there are.
    """

    prefix: tuple[Any, ...]
    split: Callable[[Any, int], list[Any]]


class Call(NamedTuple):
    """Commands for one shard's engine, sent in one round trip; the reply is the list of their replies.

    A read is sent again by the driver when the connection breaks. A write is not: the conversation is told by
    `Interrupted`, since only it knows how to find out whether the write happened. Calls of several tasks that have a
    `joint` may be sent as one.
    """

    shard: int
    commands: tuple[tuple[Any, ...], ...]
    is_write: bool = False
    joint: Joint | None = None


class Pause(NamedTuple):
    """Wait this many seconds; the reply is None."""

    seconds: float


class Fetch(NamedTuple):
    """Call this, which takes its time over files or another network; the reply is what it returns."""

    call: Callable[[], Any]


class Wrote(NamedTuple):
    """A write is in the log; should what follows fail, the error says so. The reply is None.

    The first one of a conversation counts, which is the one to retry it with.
    """

    event_id: str
    position: Position
    fence: int | None = None


class Abandoned(NamedTuple):
    """What was written is of no more use to the conversation, which begins again. The reply is None."""


class Queued(NamedTuple):
    """Do a job when those that were queued before it under the same key are done; the reply is its result.

    Jobs that wait are done together: `work` takes them in their order, and returns the result or the error of each.
    """

    queues: Queues
    key: Hashable
    job: Any
    work: Callable[[Sequence[Any]], Generator[Any, Any, Sequence[Any]]]


Request = Call | Fetch | Pause | Queued | Wrote | Abandoned
Step = Generator[Request, Any, T]
"""A conversation whose result is a T."""


class Interrupted(Exception):
    """The connection broke after a write was sent and before its reply came: it may have happened or not."""


def ask(shard: int, *command: Any) -> Step[Any]:
    """Send one read and return its reply."""
    replies = yield Call(shard, (command,))
    return replies[0]


def ask_all(shard: int, commands: list[tuple[Any, ...]]) -> Step[list[Any]]:
    """Send several reads in one round trip and return their replies."""
    replies = yield Call(shard, tuple(commands))
    return list(replies)
