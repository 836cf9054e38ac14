"""The driver of conversations, over connections to Redis or Valkey servers.

It speaks to redis-py's connections directly: its own retries would send a write twice without knowing whether the
first one happened.
"""

# Generated from drivers_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from hiredis import pack_command
from redis import exceptions as redis_errors

from scratchbus.engine.connections import Commands, Connection, Revive, hang_up, whole_from
from scratchbus.engine.routing import Address, Conversation, Sending, Topology, deliver
from scratchbus.engine.scripts import Script
from scratchbus.engine.steps import Abandoned, Call, Interrupted, Pause, Queued, Request, Wrote
from scratchbus.errors import ArchiveError, BusClosed, EngineError, LogError, ScratchbusError
from scratchbus.telemetry.counters import counts

T = TypeVar("T")

_THROWN = (Interrupted, ScratchbusError, redis_errors.RedisError, OSError)
"""What a conversation is told of a request that failed; anything else ends it."""


class Engine:
    """Drives conversations over blocking connections; safe to share between threads and after a fork."""

    def __init__(
        self,
        make: Callable[[Address], Connection],
        where: str,
        topology: Topology,
        revive: Revive = None,
        *,
        counts_errors: bool = False,
    ) -> None:
        self._make = make
        self._topology = topology
        self._revive = revive
        self._counts_errors = counts_errors
        self._idle: dict[Address, deque[Connection]] = defaultdict(deque)
        self._is_closed = False
        self.where = where
        self._busy: set[Connection] = set()
        self._pid = os.getpid()

    def run(self, conversation: Conversation[T], *, is_part: bool = False) -> T:
        """Run a conversation to its end and return its result. Raises BusClosed.

        An error of the engine, the log or the archive says what the conversation had written before. Those of the
        engine are counted if this engine does so, and the conversation `is_part` of no other.
        """
        if self._is_closed:
            raise BusClosed
        wrote: Wrote | None = None
        step: Callable[[Any], Request | Sending] = conversation.send
        reply: Any = None
        while True:
            try:
                request = step(reply)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]  # it returns a T
            except (EngineError, LogError, ArchiveError) as error:
                if wrote is not None:
                    error.written(*wrote)
                if self._counts_errors and not is_part and isinstance(error, EngineError):
                    counts.engine_errors[type(error).__name__] += 1
                raise
            step, reply = conversation.send, None
            try:
                if isinstance(request, Call):
                    reply = self.execute(request)
                elif isinstance(request, Sending):
                    reply = self._send(request.address, request.commands)
                elif isinstance(request, Wrote):
                    wrote = wrote or request
                elif isinstance(request, Abandoned):
                    wrote = None
                elif isinstance(request, Queued):
                    reply = request.queues.run(request, partial(self.run, is_part=True))
                elif isinstance(request, Pause):
                    time.sleep(request.seconds)
                else:
                    reply = self._call(request.call)
            except _THROWN as error:
                step, reply = conversation.throw, error

    def execute(self, call: Call) -> list[Any]:
        """Send one request. Raises Interrupted for a write whose reply was lost, else our engine errors."""
        failure: Exception | None = None
        if (server := self._topology.only) is not None:
            try:
                return self._send(server, call.commands)
            except (redis_errors.RedisError, OSError) as error:
                failure = error
        return self.run(deliver(self._topology, call, self.where, failure), is_part=True)

    def _send(self, server: Address, commands: Commands) -> list[Any]:
        """Send commands to a server in one round trip, and return their replies. Raises BusClosed."""
        if self._is_closed:
            raise BusClosed
        if self._pid != os.getpid():  # a forked child must not share its parent's sockets
            self._idle, self._busy, self._pid = defaultdict(deque), set(), os.getpid()
        try:
            connection = self._idle[server].pop()
        except IndexError:
            connection = self._make(server)
        self._busy.add(connection)
        try:
            if not connection.is_connected:
                self._connect(connection)
            if self._is_closed:  # `break_off` has not seen what was taken, or got a socket, too late
                raise BusClosed
            replies, missing = self._converse(connection, commands)
            if missing:
                with suppress(redis_errors.ResponseError):  # who only reads may not
                    self._converse(connection, tuple(Script.reading))
                replies[missing[0] :], _ = self._converse(connection, whole_from(commands, missing))
            return replies
        except redis_errors.ReadOnlyError:
            connection.disconnect(True)  # a primary that was demoted keeps its clients; reconnect
            raise
        except (redis_errors.RedisError, OSError):
            raise
        except BaseException:
            connection.disconnect(True)  # its reply may still be on the way
            raise
        finally:
            self._busy.discard(connection)
            self._idle[server].append(connection)
            if self._is_closed:
                self.close()  # type: ignore[unreachable]  # by others, meanwhile

    def _connect(self, connection: Connection) -> None:
        try:
            connection.connect()
        except redis_errors.ConnectionError:
            if self._is_closed:
                raise BusClosed from None
            if self._revive is None:
                raise
            self._call(self._revive)
            connection.connect()

    def _call(self, call: Callable[[], Any]) -> Any:
        return call()

    def _converse(self, connection: Connection, commands: Commands) -> tuple[list[Any], list[int]]:
        """Send commands; return their replies, and which of them are scripts that the engine does not have."""
        connection.send_packed_command([b"".join(map(pack_command, commands))], check_health=False)
        replies: list[Any] = []
        failure: Exception | None = None
        missing: list[int] = []
        for index in range(len(commands)):
            try:
                replies.append(connection.read_response())
            except redis_errors.NoScriptError:
                missing.append(index)
                replies.append(None)
            except redis_errors.ResponseError as error:
                failure = failure or error
                replies.append(None)
        if failure is not None:
            raise failure
        return replies, missing

    def close(self) -> None:
        """Close the connections, those in use when they come back; nothing can be sent any more."""
        self._is_closed = True
        for idle in list(self._idle.values()):
            with suppress(IndexError):  # another thread may take the last one
                while True:
                    idle.pop().disconnect()

    def break_off(self) -> None:
        """Close at once: what other threads wait for ends with BusClosed. For an engine that only reads."""
        self.close()
        for connection in list(self._busy) if self._pid == os.getpid() else ():
            hang_up(connection)
