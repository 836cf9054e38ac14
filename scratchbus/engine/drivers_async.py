"""The driver of conversations, over connections to Redis or Valkey servers.

It speaks to redis-py's connections directly: its own retries would send a write twice without knowing whether the
first one happened.
"""

from __future__ import annotations

import asyncio

# blocking only:
# import os
# import time
# from scratchbus.engine.connections import hang_up
# end
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from hiredis import pack_command
from redis import exceptions as redis_errors

from scratchbus.engine.connections import AsyncConnection, Commands, Revive, whole_from
from scratchbus.engine.routing import Address, Conversation, Sending, Topology, deliver
from scratchbus.engine.scripts import Script
from scratchbus.engine.steps import Abandoned, Call, Interrupted, Pause, Queued, Request, Wrote
from scratchbus.errors import ArchiveError, BusClosed, EngineError, LogError, ScratchbusError
from scratchbus.telemetry.counters import counts

T = TypeVar("T")

_THROWN = (Interrupted, ScratchbusError, redis_errors.RedisError, OSError)
"""What a conversation is told of a request that failed; anything else ends it."""


class AsyncEngine:
    # asyncio only:
    """Drives conversations over asyncio connections.

    `timeout` (seconds) bounds the wait for a reply; the connections have none of their own, since redis-py guards a
    write with `asyncio.wait_for`, which before Python 3.12 may swallow the cancellation of its task. One event loop
    after the other may use it, not two at once.
    """

    # end
    # blocking only:
    # """Drives conversations over blocking connections; safe to share between threads and after a fork."""
    # end

    def __init__(
        self,
        make: Callable[[Address], AsyncConnection],
        where: str,
        topology: Topology,
        # asyncio only:
        timeout: float,
        # end
        revive: Revive = None,
        *,
        counts_errors: bool = False,
    ) -> None:
        self._make = make
        self._topology = topology
        self._revive = revive
        self._counts_errors = counts_errors
        self._idle: dict[Address, deque[AsyncConnection]] = defaultdict(deque)
        self._is_closed = False
        self.where = where
        # asyncio only:
        self._waits: set[asyncio.Timeout] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timeout = timeout
        # end
        # blocking only:
        # self._busy: set[Connection] = set()
        # self._pid = os.getpid()
        # end

    async def run(self, conversation: Conversation[T], *, is_part: bool = False) -> T:
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
                    reply = await self.execute(request)
                elif isinstance(request, Sending):
                    reply = await self._send_in_time(request.address, request.commands)
                elif isinstance(request, Wrote):
                    wrote = wrote or request
                elif isinstance(request, Abandoned):
                    wrote = None
                elif isinstance(request, Queued):
                    reply = await request.queues.run_async(request, partial(self.run, is_part=True))
                elif isinstance(request, Pause):
                    # asyncio only:
                    await asyncio.sleep(request.seconds)
                    # end
                    # blocking only:
                    # time.sleep(request.seconds)
                    # end
                else:
                    reply = await self._call(request.call)
            except _THROWN as error:
                step, reply = conversation.throw, error

    async def execute(self, call: Call) -> list[Any]:
        """Send one request. Raises Interrupted for a write whose reply was lost, else our engine errors."""
        failure: Exception | None = None
        if (server := self._topology.only) is not None:
            try:
                return await self._send_in_time(server, call.commands)
            except (redis_errors.RedisError, OSError) as error:
                failure = error
        return await self.run(deliver(self._topology, call, self.where, failure), is_part=True)

    # asyncio only:
    async def _send_in_time(self, server: Address, commands: Commands) -> list[Any]:
        """Send commands to a server, and return their replies. Raises redis-py's TimeoutError, and BusClosed."""
        self._forget_other_loops()
        try:
            async with asyncio.timeout(self._timeout) as wait:
                self._waits.add(wait)
                return await self._send(server, commands)
        except TimeoutError:
            raise redis_errors.TimeoutError(f"no reply within {self._timeout:g} s") from None
        finally:
            self._waits.discard(wait)

    # end

    async def _send(self, server: Address, commands: Commands) -> list[Any]:
        """Send commands to a server in one round trip, and return their replies. Raises BusClosed."""
        if self._is_closed:
            raise BusClosed
        # blocking only:
        # if self._pid != os.getpid():  # a forked child must not share its parent's sockets
        #     self._idle, self._busy, self._pid = defaultdict(deque), set(), os.getpid()
        # end
        try:
            connection = self._idle[server].pop()
        except IndexError:
            connection = self._make(server)
        # blocking only:
        # self._busy.add(connection)
        # end
        try:
            if not connection.is_connected:
                await self._connect(connection)
            if self._is_closed:  # `break_off` has not seen what was taken, or got a socket, too late
                raise BusClosed
            replies, missing = await self._converse(connection, commands)
            if missing:
                with suppress(redis_errors.ResponseError):  # who only reads may not
                    await self._converse(connection, tuple(Script.reading))
                replies[missing[0] :], _ = await self._converse(connection, whole_from(commands, missing))
            return replies
        except redis_errors.ReadOnlyError:
            await connection.disconnect(True)  # a primary that was demoted keeps its clients; reconnect
            raise
        except (redis_errors.RedisError, OSError):
            raise
        except BaseException:
            await connection.disconnect(True)  # its reply may still be on the way
            raise
        finally:
            # blocking only:
            # self._busy.discard(connection)
            # end
            self._idle[server].append(connection)
            if self._is_closed:
                await self.close()  # type: ignore[unreachable]  # by others, meanwhile

    async def _connect(self, connection: AsyncConnection) -> None:
        try:
            await connection.connect()
        except redis_errors.ConnectionError:
            if self._is_closed:
                raise BusClosed from None
            if self._revive is None:
                raise
            await self._call(self._revive)
            await connection.connect()

    async def _call(self, call: Callable[[], Any]) -> Any:
        # asyncio only:
        return await asyncio.to_thread(call)
        # end
        # blocking only:
        # return call()
        # end

    async def _converse(self, connection: AsyncConnection, commands: Commands) -> tuple[list[Any], list[int]]:
        """Send commands; return their replies, and which of them are scripts that the engine does not have."""
        await connection.send_packed_command([b"".join(map(pack_command, commands))], check_health=False)
        replies: list[Any] = []
        failure: Exception | None = None
        missing: list[int] = []
        for index in range(len(commands)):
            try:
                replies.append(await connection.read_response())
            except redis_errors.NoScriptError:
                missing.append(index)
                replies.append(None)
            except redis_errors.ResponseError as error:
                failure = failure or error
                replies.append(None)
        if failure is not None:
            raise failure
        return replies, missing

    async def close(self) -> None:
        """Close the connections, those in use when they come back; nothing can be sent any more."""
        self._is_closed = True
        # asyncio only:
        self._forget_other_loops()
        # end
        for idle in list(self._idle.values()):
            with suppress(IndexError):  # another task may take the last one
                while True:
                    await idle.pop().disconnect()

    async def break_off(self) -> None:
        """Close at once: what other tasks wait for ends with BusClosed. For an engine that only reads."""
        await self.close()
        # asyncio only:
        for wait in self._waits:
            if not wait.expired():
                wait.reschedule(0)
        # end
        # blocking only:
        # for connection in list(self._busy) if self._pid == os.getpid() else ():
        #     hang_up(connection)
        # end

    # asyncio only:
    def check_open(self) -> None:
        """Raise BusClosed if this was closed."""
        if self._is_closed:
            raise BusClosed

    def _forget_other_loops(self) -> None:
        """Let go of connections that another event loop opened: in this one they are of no use."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle, self._waits, self._loop = defaultdict(deque), set(), loop

    # end
