"""How a call gets to the server that its shard is on: written once, driven sync and async.

What a server says when the shard is elsewhere, or nowhere just now, is dealt with here; the conversation above does
not notice.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from scratchbus.engine.connections import Commands, is_broken, translate
from scratchbus.engine.patience import PATIENCE, READ_TRIES, backoff
from scratchbus.engine.steps import Call, Interrupted, Joint, Pause, Request
from scratchbus.telemetry.late import late

if TYPE_CHECKING:
    from redis import exceptions as redis_errors
else:
    redis_errors = late("redis.exceptions")

T = TypeVar("T")

Address = tuple[str, int]
"""Host and port of a server."""

_HERE: Address = ("", 0)
_ASKING = ("ASKING",)


class Sending(NamedTuple):
    """Commands for one server, sent in one round trip; the reply is the list of their replies."""

    address: Address
    commands: Commands
    joint: Joint | None = None


Conversation = Generator[Request | Sending, Any, T]
"""What is driven: a `Step` of the log, or a call on its way to the server of its shard."""

Learning = Generator[Sending, Any, T]
"""Finding out something about where the shards are. What the client library raises is thrown into it."""


class Topology(Protocol):
    """What is known of where the shards are; one is shared by all drivers of an engine, in all threads."""

    @property
    def patience(self) -> float:
        """For how many seconds a call waits for what will pass; a read is sent a few times in any case."""
        ...

    @property
    def only(self) -> Address | None:
        """The one server there is; None where the server of a shard has to be known first."""
        ...

    def address(self, shard: int) -> Address | None:
        """Return the server of a shard; None when that is to be found out."""
        ...

    def learn(self) -> Learning[None]:
        """Find out where the shards are. Raises ConnectionError when nobody says."""
        ...

    def note(self, failure: Exception, shard: int, address: Address | None) -> bool:
        """Take note of how a call of a shard failed at a server; return whether that will pass."""
        ...


class OneServer:
    """All shards are on one server, and always the same."""

    patience = 0.0
    only = _HERE

    def address(self, shard: int) -> Address | None:
        """Return a word for it."""
        return _HERE

    def learn(self) -> Learning[None]:
        """Do nothing: there is nothing to find out."""
        yield from ()

    def note(self, failure: Exception, shard: int, address: Address | None) -> bool:
        """Return whether the connection broke."""
        return is_lost(failure)


def is_lost(failure: Exception) -> bool:
    """Return whether the connection broke, so that a write may have happened or not."""
    return is_broken(failure) and not isinstance(
        failure, redis_errors.AuthenticationError | redis_errors.BusyLoadingError
    )


class Failover:
    """What the topologies have in common in which another server may take over."""

    only = None

    def __init__(self) -> None:
        self.has_answered = False

    @property
    def patience(self) -> float:
        """How long a failover may take; who has never been reached is not waited for."""
        return PATIENCE if self.has_answered else 0.0

    @staticmethod
    def passes(failure: Exception) -> bool:
        """Return whether servers answer this during a failover or a move. A write that gets it did not happen."""
        return is_lost(failure) or isinstance(
            failure,
            redis_errors.BusyLoadingError
            | redis_errors.ReadOnlyError
            | redis_errors.ClusterDownError
            | redis_errors.TryAgainError
            | redis_errors.AskError,  # and MovedError
        ) or any(word in str(failure) for word in ("UNBLOCKED", "access a non local key"))  # fmt: skip


def deliver(
    topology: Topology, call: Call, where: str, failed: Exception | None = None, asked: Address | None = None
) -> Generator[Sending | Pause, Any, list[Any]]:
    """Send a call to the server of its shard, and return the replies; `failed` is why the one `asked` did not answer.

    A read is sent again when the connection breaks; a write is not, and raises Interrupted. What a server refused
    because the shard is not there, or no longer, is sent again, also a write: it did not happen.
    """
    aside: Address | None = None
    deadline = 0.0
    for attempt in count():
        address = aside
        try:
            if failed is not None and attempt == 0:
                address = asked
                raise failed
            if aside is not None:
                return (yield Sending(aside, (_ASKING, *call.commands)))[1:]  # type: ignore[no-any-return]
            address = topology.address(call.shard)
            if address is None:
                yield from topology.learn()
                address = topology.address(call.shard)
                if address is None:
                    raise redis_errors.ClusterDownError(f"no server has shard {call.shard}")
            return (yield Sending(address, call.commands, call.joint))  # type: ignore[no-any-return]
        except (redis_errors.RedisError, OSError) as error:
            failure: Exception = error
        passes = topology.note(failure, call.shard, address)
        if call.is_write and is_lost(failure):
            raise Interrupted(str(translate(failure, where)))
        deadline = deadline or time.monotonic() + topology.patience
        if not passes:
            raise translate(failure, where)
        if attempt >= READ_TRIES - 1 and time.monotonic() > deadline:
            if isinstance(failure, redis_errors.AskError):
                failure = redis_errors.TryAgainError(f"slot {failure.slot_id} is being moved")
            raise translate(failure, where)
        aside = None
        if isinstance(failure, redis_errors.MovedError) and attempt == 0:
            continue
        if type(failure) is redis_errors.AskError and _may_go_aside(call):
            if len(call.commands) > 1:
                replies = []
                for command in call.commands:
                    replies += yield from deliver(topology, Call(call.shard, (command,)), where)
                return replies
            aside = (failure.host or (address or _HERE)[0], failure.port)
            continue
        yield Pause(backoff(attempt))
    raise AssertionError("unreachable")


def _may_go_aside(call: Call) -> bool:
    """Return whether a call may follow its slot while that moves; a call with several keys waits for the end."""
    return not call.is_write and not any(str(command[0]).startswith("EVAL") for command in call.commands)
