"""Conversations with the engine, written once and driven sync or async.

A conversation is a generator: it yields a request, is sent the reply, and returns its result. It never awaits and
never blocks. `Engine` and `AsyncEngine` drive it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct

from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Prefix

if TYPE_CHECKING:
    from scratchbus.engine.queues import Queues

T = TypeVar("T")


class Joint(Struct, frozen=True, gc=False):
    """How the only command of a call is sent: it begins with `alone`, and goes on with `count` arguments of its `own`.

    Those are packed already, as `packed_arguments` does it. Calls with the same `together`, the very object, may be
    joined, unless it is None: one command is sent that begins with it and goes on with the `own` of each. `split`
    returns the reply for each, from the reply of the whole and how many there are.
    """

    alone: Prefix
    own: bytes
    count: int
    together: Prefix | None = None
    split: Callable[[Any, int], list[Any]] | None = None

    def packed(self) -> bytes:
        """Return the command as it is sent alone."""
        return b"*%d\r\n%b%b" % (len(self.alone) + self.count, self.alone.packed, self.own)


class Call(Struct, frozen=True, gc=False):
    """Commands for one shard's engine, sent in one round trip; the reply is the list of their replies.

    A read is sent again by the driver when the connection breaks. A write is not: the conversation is told by
    `Interrupted`, since only it knows how to find out whether the write happened. One with a `joint` is packed faster,
    and those of several tasks may be sent as one.
    """

    shard: int
    commands: tuple[tuple[Any, ...], ...]
    is_write: bool = False
    joint: Joint | None = None


class Sent:
    """A call that was sent before its replies are needed; `Collect` returns them. Dropping it abandons the call.

    `address` is where it was sent, None if it could not be, so that it is sent when its replies are wanted. `link` is
    the connection that they come on; `replies` is set where they are waited for as asyncio does.
    """

    __slots__ = ("address", "call", "forget", "link", "replies")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.address: Any = None
        self.link: Any = None
        self.replies: Any = None
        self.forget: Callable[[Any], object] | None = None

    def __del__(self) -> None:
        if self.forget is not None:
            self.forget(self.link)


class Send(NamedTuple):
    """Send a call without waiting for the replies, so that the engine works meanwhile; the reply is a `Sent`.

    None of its commands may block.
    """

    call: Call


class Collect(NamedTuple):
    """Take the replies to a call that was sent; the reply is that of the call.

    A read whose connection broke meanwhile is sent again; of a write, `Interrupted` tells then. The replies are as old
    as the sending.
    """

    sent: Sent


class Pause(NamedTuple):
    """Wait this many seconds; the reply is None."""

    seconds: float


class Fetch(NamedTuple):
    """Call this, which takes its time over files or another network; the reply is what it returns."""

    call: Callable[[], Any]


class Wrote(Struct, frozen=True, gc=False):
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


Request = Call | Send | Collect | Fetch | Pause | Queued | Wrote | Abandoned
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
    if not commands:
        return []
    replies = yield Call(shard, tuple(commands))
    return list(replies)
