"""Sending a call to the server of its shard: written once, driven by blocking and asyncio code.

This module handles redirects and servers that cannot serve the shard at the moment, so that the conversation above does
not have to.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from itertools import count
from typing import Any, NamedTuple, TypeVar

from scratchbus.engine.connections import Commands, is_broken, translate
from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.retry_limits import READ_TRIES, RECOVERY_SECONDS, backoff
from scratchbus.engine.steps import Call, Interrupted, Joint, Pause, Request

T = TypeVar("T")

Address = tuple[str, int]
"""Host and port of a server."""

ONLY_SERVER: Address = ("", 0)
"""The address of the server of a URL that names only one."""

_ASKING = ("ASKING",)


class Sending(NamedTuple):
    """Commands for one server, sent in one round trip; the reply is the list of their replies."""

    address: Address
    commands: Commands
    joint: Joint | None = None


Conversation = Generator[Request | Sending, Any, T]
"""A generator that an engine drives: a `Step`, or the delivery of a call to the server of its shard."""

Learning = Generator[Sending, Any, T]
"""A generator that asks servers where the shards are. Errors of the client library are thrown into it."""


class Topology:
    """The known locations of the shards, shared by all drivers of an engine in all threads; a failover changes them."""

    has_answered = False
    """Whether a server has ever answered."""

    only: Address | None = None
    """The server, if there is only one; None if the server of a shard must be looked up first."""

    @property
    def retry_seconds(self) -> float:
        """Seconds that a failover may take, 0 before any answer; a read is sent a few times in any case."""
        return RECOVERY_SECONDS if self.has_answered else 0.0

    def address(self, shard: int) -> Address | None:
        """Return the server of a shard; None if it is unknown."""
        raise NotImplementedError

    def learn(self) -> Learning[None]:
        """Find out where the shards are. Raises ConnectionError if no server answers."""
        raise NotImplementedError

    def note(self, failure: Exception, address: Address | None) -> bool:
        """Note how a call failed at a server; return whether the failure is transient."""
        raise NotImplementedError

    @staticmethod
    def is_transient(failure: Exception) -> bool:
        """Return whether servers answer with this error during a failover or while a slot moves.

        Unless the connection was lost, a write that failed with it did not happen.
        """
        return is_lost(failure) or isinstance(
            failure,
            redis_errors.BusyLoadingError
            | redis_errors.ReadOnlyError
            | redis_errors.ClusterDownError
            | redis_errors.TryAgainError
            | redis_errors.AskError,  # and MovedError
        ) or "access a non local key" in str(failure)  # fmt: skip


class OneServer(Topology):
    """All shards are always on the same server, so there is nothing to learn."""

    retry_seconds = 0.0
    only = ONLY_SERVER

    def address(self, shard: int) -> Address | None:
        """Return the address that stands for it."""
        return ONLY_SERVER

    def note(self, failure: Exception, address: Address | None) -> bool:
        """Return whether the connection broke."""
        return is_lost(failure)


def is_lost(failure: Exception) -> bool:
    """Return whether the connection broke, so that a write may or may not have happened.

    A master that becomes a replica unblocks its clients before it closes their connections: a WAIT follows a write.
    """
    if isinstance(failure, redis_errors.AuthenticationError | redis_errors.BusyLoadingError):
        return False
    return is_broken(failure) or "UNBLOCKED" in str(failure)


def deliver(
    topology: Topology,
    call: Call,
    where: str,
    first_failure: Exception | None = None,
    first_address: Address | None = None,
) -> Generator[Sending | Pause, Any, list[Any]]:
    """Send a call to the server of its shard and return the replies.

    After an attempt that already failed, `first_failure` is its error and `first_address` its server. When the
    connection breaks, a read is sent again, and a write raises Interrupted. Reads and writes that a server refused
    because it does not have the shard are sent again, since they did not happen. A read that waits on the log and times
    out has waited for long: it is sent again only as long as a failover may take.
    """
    ask_address: Address | None = None
    deadline = 0.0
    for attempt in count():
        address = ask_address
        try:
            if first_failure is not None and attempt == 0:
                address = first_address
                raise first_failure
            if ask_address is not None:
                return (yield Sending(ask_address, (_ASKING, *call.commands)))[1:]  # type: ignore[no-any-return]
            address = topology.address(call.shard)
            if address is None:
                yield from topology.learn()
                address = topology.address(call.shard)
                if address is None:
                    raise redis_errors.ClusterDownError(f"no server has shard {call.shard}")
            return (yield Sending(address, call.commands, call.joint))  # type: ignore[no-any-return]
        except (redis_errors.RedisError, OSError) as error:
            failure: Exception = error
        is_transient = topology.note(failure, address)
        if call.is_write and is_lost(failure):
            raise Interrupted(str(translate(failure, where, has_answered=topology.has_answered)))
        deadline = deadline or time.monotonic() + topology.retry_seconds
        if not is_transient:
            raise translate(failure, where, has_answered=topology.has_answered)
        is_last = attempt >= READ_TRIES - 1 or (isinstance(failure, redis_errors.TimeoutError) and _waits_on_log(call))
        if is_last and time.monotonic() >= deadline:
            if isinstance(failure, redis_errors.AskError):
                failure = redis_errors.TryAgainError(f"slot {failure.slot_id} is being moved")
            raise translate(failure, where, has_answered=topology.has_answered)
        ask_address = None
        if isinstance(failure, redis_errors.MovedError) and attempt == 0:
            continue
        if type(failure) is redis_errors.AskError and _may_follow_ask(call):
            if len(call.commands) > 1:
                replies = []
                for command in call.commands:
                    replies += yield from deliver(topology, Call(call.shard, (command,)), where)
                return replies
            ask_address = (failure.host or (address or ONLY_SERVER)[0], failure.port)
            continue
        yield Pause(backoff(attempt))
    raise AssertionError("unreachable")


def _waits_on_log(call: Call) -> bool:
    return any(command[0] == "XREAD" and "BLOCK" in command for command in call.commands)


def _may_follow_ask(call: Call) -> bool:
    """Return whether a call may follow its slot while it is being moved; writes and scripts wait for the end."""
    return not call.is_write and not any(str(command[0]).startswith("EVAL") for command in call.commands)
