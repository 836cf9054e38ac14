"""Asyncio connections to servers, which redis-py opens, and over which the driver speaks itself.

Tasks share them: each gets the replies to its own requests, which come in the order in which they were sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple

from hiredis import pack_command

from scratchbus.engine.connections import HUNG_UP, UNREAD, AsyncConnection, Commands, reply_reader
from scratchbus.late import late

if TYPE_CHECKING:
    from redis import exceptions as redis_errors
else:
    redis_errors = late("redis.exceptions")

_MOST_QUEUED = 16
"""So many requests are sent without waiting for those of more tasks, so that the engine has something to do."""


class _Request(NamedTuple):
    """A request on its way: the future of its replies, by when (loop time) it has to have them, and how many."""

    future: asyncio.Future[list[Any]]
    deadline: float
    replies: int


class AsyncLink(asyncio.Protocol):
    """A connection to a server, which is opened once, in one event loop; replies take `timeout` seconds at most."""

    def __init__(self, connection: AsyncConnection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._opening = asyncio.Lock()
        self._transport: Any = None
        self._requests: deque[_Request] = deque()
        self._queued: list[bytes] = []
        self._replies: list[Any] = []  # those of the first request, until it has all
        self._timer: asyncio.TimerHandle | None = None
        self.is_open = self.is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether replies are to come."""
        return bool(self._requests)

    async def open(self) -> None:
        """Open the socket, log in, and choose the database, unless another task did."""
        async with self._opening:
            if self.is_open:
                return
            if self.is_closed:
                raise redis_errors.ConnectionError(HUNG_UP)
            connection = self._connection
            try:
                await connection.connect()
                if self.is_closed:  # meanwhile
                    raise redis_errors.ConnectionError(HUNG_UP)
            except BaseException:
                await connection.disconnect(True)
                raise
            self._take_over(connection)
            self.is_open = True

    def _take_over(self, connection: AsyncConnection) -> None:
        """Do without asyncio's streams from here on: they cost more than the rest of a driver."""
        self._loop, self._reader = asyncio.get_running_loop(), reply_reader()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._writer, connection._writer, connection._reader = connection._writer, None, None
        self._transport = self._writer.transport
        self._transport.set_protocol(self)

    def exchange(self, commands: Commands) -> Awaitable[list[Any]]:
        """Send commands, and return their replies, errors among them.

        While others wait for replies, what tasks ask for in one turn of the loop is sent together.
        """
        loop = self._loop
        future: asyncio.Future[list[Any]] = loop.create_future()
        if not self.is_open:  # not any more
            future.set_exception(redis_errors.ConnectionError(HUNG_UP))
            return future
        packed = pack_command(commands[0]) if len(commands) == 1 else b"".join(map(pack_command, commands))
        if not self._requests:
            self._transport.write(packed)
        else:
            self._queued.append(packed)
            if len(self._queued) == 1:
                loop.call_soon(self._flush)
            elif len(self._queued) == _MOST_QUEUED:
                self._flush()
        self._requests.append(_Request(future, loop.time() + self._timeout, len(commands)))
        if self._timer is None:
            self._timer = loop.call_later(self._timeout, self._check_deadline)
        return future

    def _flush(self) -> None:
        if self._queued:
            self._transport.write(b"".join(self._queued))
            self._queued.clear()

    def data_received(self, data: bytes) -> None:
        """Hand out the replies that are complete."""
        requests, reader = self._requests, self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not UNREAD:
                if not requests or isinstance(reply, redis_errors.ConnectionError):
                    raise redis_errors.ConnectionError(str(reply))
                self._replies.append(reply)
                if len(self._replies) == requests[0].replies:
                    future = requests.popleft().future
                    if not future.done():  # its task was cancelled
                        future.set_result(self._replies)
                    self._replies = []
        except redis_errors.RedisError as error:
            self._break(error)
        if self.is_closed and not requests:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell those who wait."""
        self._lost.set_result(None)
        said = HUNG_UP if exc is None else f"Error while reading from socket: {exc.args}"
        self._break(redis_errors.ConnectionError(said))

    def _check_deadline(self) -> None:
        """Break the connection if a reply is overdue, since those after it are late too; else look again later."""
        self._timer = None
        if self._requests:
            deadline = self._requests[0].deadline
            if self._loop.time() < deadline:
                self._timer = self._loop.call_at(deadline, self._check_deadline)
            else:
                self._break(redis_errors.TimeoutError(f"no reply within {self._timeout:g} s"))

    def _break(self, error: redis_errors.RedisError) -> None:
        """Close the connection at once, and raise an error in all tasks that wait for a reply."""
        self.close()
        while self._requests:
            future = self._requests.popleft().future
            if not future.done():
                future.set_exception(type(error)(*error.args))

    def hang_up(self) -> None:
        """End what tasks wait for: they are told that the connection broke."""
        self._break(redis_errors.ConnectionError(HUNG_UP))

    def close(self) -> None:
        """Close the socket at once."""
        self.is_open, self.is_closed = False, True
        self._queued.clear()
        if self._transport is not None:
            self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()

    async def aclose(self) -> None:
        """Take no more requests, and close the socket when the replies to come are there; wait if there are none."""
        self.is_open, self.is_closed = False, True
        if self._transport is not None and not self._requests:
            self._transport.close()
            await asyncio.wait([self._lost], timeout=self._timeout)
