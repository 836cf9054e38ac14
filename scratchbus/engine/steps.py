"""Conversations with the engine, written once and driven by blocking or asyncio code.

A conversation is a generator: it yields a request, is sent the reply, and returns its result. It never awaits and
never blocks. `Engine` and `AsyncEngine` drive it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct

from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Prefix
from scratchbus.errors import ScratchbusError

if TYPE_CHECKING:
    from scratchbus.engine.queues import Queues

T = TypeVar("T")


class Joint(Struct, frozen=True, gc=False):
    """The packed form of a call's only command: the prefix `alone`, then `count` arguments, packed as `own`.

    `packed_arguments` packs them. Calls whose `together` is the same object, not None, may be joined: one command is
    sent with this prefix and the `own` of each. `split` takes its reply and the number of calls, and returns the reply
    of each call.
    """

    alone: Prefix
    own: bytes
    count: int
    together: Prefix | None = None
    split: Callable[[Any, int], list[Any]] | None = None

    def packed(self) -> bytes:
        """Return the command in wire format, when it is sent alone."""
        return b"*%d\r\n%b%b" % (len(self.alone) + self.count, self.alone.packed, self.own)


class Call(Struct, frozen=True, gc=False):
    """Commands for one shard's engine, sent in one round trip; the reply is the list of their replies.

    If the connection breaks, the driver sends a read again. For a write it raises `Interrupted` in the conversation,
    since only that can find out whether the write happened. A call with a `joint` is packed faster, and such calls of
    several tasks may be sent as one.
    """

    shard: int
    commands: tuple[tuple[Any, ...], ...]
    is_write: bool = False
    joint: Joint | None = None


class Sent:
    """A call that was sent before its replies are needed; `Collect` returns them. Deleting it abandons the call.

    `address` is the server that it was sent to; None if it could not be sent, then `Collect` sends it. `link` is its
    connection; `replies` is the future of its replies, with asyncio only.
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
    """Send a call without waiting for the replies, while the engine works on it; the reply is a `Sent`.

    None of its commands may block.
    """

    call: Call


class Collect(NamedTuple):
    """Wait for the replies to a call that was sent; the reply is that of the call.

    If the connection broke meanwhile, a read is sent again, and a write raises `Interrupted`. The replies reflect the
    time of sending.
    """

    sent: Sent


class Pause(NamedTuple):
    """Wait this many seconds; the reply is None."""

    seconds: float


class Fetch(NamedTuple):
    """Call a function that waits for files or for another network; the reply is its result."""

    call: Callable[[], Any]


class Within(NamedTuple):
    """Do a conversation of reads in this many seconds; the reply is its result. Raises TimeoutError if it takes longer.

    Then it may still continue for a while, with blocking code.
    """

    seconds: float
    conversation: Generator[Any, Any, Any]


class Wrote(Struct, frozen=True, gc=False):
    """A write is in the log; if the conversation fails later, its error says so. The reply is None.

    The first write of a conversation counts: its event id is the one to retry with.
    """

    event_id: str
    position: Position
    fence: int | None = None


class Abandoned(NamedTuple):
    """The conversation discards what it wrote and starts over. The reply is None."""


class Queued(NamedTuple):
    """Do a job after those queued before it under the same key; the reply is its result.

    Waiting jobs are done together: `work` takes them in order and returns the result or the error of each.
    """

    queues: Queues
    key: Hashable
    job: Any
    work: Callable[[Sequence[Any]], Generator[Any, Any, Sequence[Any]]]


Request = Call | Send | Collect | Fetch | Pause | Queued | Within | Wrote | Abandoned
Step = Generator[Request, Any, T]
"""A conversation whose result is a T."""


class Interrupted(Exception):
    """The connection broke after a write was sent and before its reply came: it may or may not have happened."""


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


def undo_if_cancelled(step: Step[T], undo: Callable[[], Step[object]]) -> Step[T]:
    """Return the result of a step; if it is cancelled, or interrupted by Ctrl-C, undo it: it may have happened.

    What undoes it is a single call, which is sent once: who cancels does not wait for an engine that is away.
    """
    try:
        return (yield from step)
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        with suppress(ScratchbusError, Interrupted):
            call = next(undo())
            if isinstance(call, Call):
                yield Call(call.shard, call.commands, is_write=True)
        raise


def side_by_side(conversations: Sequence[Step[T]]) -> Step[list[T]]:
    """Return the results of conversations that mostly read: what they read next is sent in one call per shard.

    Writes, and whatever else they request, are done alone. If a joint call fails, each of its reads is made alone, and
    its conversation gets the error. An error of one of the conversations ends all.
    """
    results: dict[int, T] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(conversations)))
    while answers:
        reads: dict[int, dict[int, Call]] = {}
        for number, answer in answers.items():
            read = yield from _next_read(conversations[number], answer)
            if isinstance(read, _Ended):
                results[number] = read.result
            else:
                reads.setdefault(read.shard, {})[number] = read
        answers = {}
        for group in reads.values():
            answers |= zip(group, (yield from _answers([*group.values()])), strict=True)
    return [results[number] for number in range(len(conversations))]


class _Ended(NamedTuple):
    result: Any


def _answers(reads: Sequence[Call]) -> Step[list[Any]]:
    """Return the replies to reads of one shard, or the error of each."""
    try:
        found = iter((yield Call(reads[0].shard, tuple(command for read in reads for command in read.commands))))
        return [[*islice(found, len(read.commands))] for read in reads]
    except ScratchbusError as error:
        if len(reads) == 1:
            return [error]
    answers: list[Any] = []
    for read in reads:
        try:
            answers.append((yield read))
        except ScratchbusError as error:
            answers.append(error)
    return answers


def _next_read(conversation: Step[Any], reply: Any) -> Step[Call | _Ended]:
    """Continue a conversation, with a reply or an error, until it reads or ends; return that call, or its result."""
    resume: Callable[[Any], Request] = conversation.throw if isinstance(reply, ScratchbusError) else conversation.send
    while True:
        try:
            request = resume(reply)
        except StopIteration as done:
            return _Ended(done.value)
        if isinstance(request, Call) and not request.is_write:
            return request
        try:
            resume, reply = conversation.send, (yield request)
        except (ScratchbusError, Interrupted) as error:
            resume, reply = conversation.throw, error


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield so many items at a time, as one call may take."""
    return (items[at : at + size] for at in range(0, len(items), size))
