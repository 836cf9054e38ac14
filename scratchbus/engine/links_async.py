"""Asyncio connections to servers: redis-py opens them, this module sends and receives.

Tasks share a connection. Replies arrive in the order of the requests, so each task gets its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from copy import copy
from typing import Any

from scratchbus.engine.connections import HUNG_UP, UNREAD, AsyncConnection, Commands, pack, reply_reader
from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.steps import Joint

_MAX_QUEUED = 25
"""The number of queued requests that are sent at once, without waiting for more tasks, to keep the engine busy."""

_Future = asyncio.Future[list[Any]]
_Split = Callable[[Any, int], list[Any]]

_Request = tuple[_Future, bytes, int, Joint | None]
"""A queued request: the future for its replies, its packed commands (only the own arguments if it is joint), their
number, and the joint."""

_Sent = tuple[list[_Future], _Split | None, int, float]
"""A sent request: the futures for its replies, the function that splits one reply among them, the number of expected
replies, and their deadline (loop time)."""


def _resolve(futures: list[_Future], split: _Split | None, replies: list[Any]) -> None:
    """Set replies as the results of futures, except for those of cancelled tasks."""
    if split is None:
        results = [replies]
    elif isinstance(replies[0], redis_errors.RedisError):
        results = [[copy(replies[0])] for _ in futures]
    else:
        results = [[reply] for reply in split(replies[0], len(futures))]
    for future, result in zip(futures, results, strict=True):
        if not future.done():
            future.set_result(result)


def _fail(futures: list[_Future], error: Exception) -> None:
    """Raise a copy of an error in every task that still waits for a reply."""
    for future in futures:
        if not future.done():
            future.set_exception(copy(error))


class AsyncLink(asyncio.Protocol):
    """A connection to a server, opened once, in one event loop.

    While replies are outstanding, the server may be silent for at most `timeout` seconds. Replies to many requests may
    take longer together, also because other tasks keep the loop from reading them.
    """

    def __init__(self, connection: AsyncConnection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._opening = asyncio.Lock()
        self._transport: Any = None
        self._queued: list[_Request] = []
        self._sent: deque[_Sent] = deque()
        self._replies: list[Any] = []  # to the oldest sent request, until it has all
        self._timer: asyncio.TimerHandle | None = None
        self._heard = 0.0  # when the last data arrived, by the loop's clock
        self.is_open = self.is_closed = False

    async def open(self) -> None:
        """Open the socket, log in and select the database, unless another task has done so."""
        async with self._opening:
            if self.is_open:
                return
            if self.is_closed:
                raise redis_errors.ConnectionError(HUNG_UP)
            connection = self._connection
            try:
                await connection.connect()
                if self.is_closed:  # by another task, meanwhile
                    raise redis_errors.ConnectionError(HUNG_UP)
            except BaseException:
                await connection.disconnect(True)
                raise
            self._take_over(connection)
            self.is_open = True

    def _take_over(self, connection: AsyncConnection) -> None:
        """Replace asyncio's streams, which cost more than the rest of a driver."""
        self._loop, self._reader = asyncio.get_running_loop(), reply_reader()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._writer, connection._writer, connection._reader = connection._writer, None, None
        self._transport = self._writer.transport
        self._transport.set_protocol(self)

    def exchange(self, commands: Commands, joint: Joint | None = None) -> Awaitable[list[Any]]:
        """Send commands and return their replies, including errors.

        While replies are outstanding, all requests of one iteration of the event loop are sent together.
        """
        future: _Future = self._loop.create_future()
        if not self.is_open:  # it was closed meanwhile
            future.set_exception(redis_errors.ConnectionError(HUNG_UP))
        elif not self._sent:
            packed = pack(commands) if joint is None else joint.packed()
            self._expect([future], len(commands))
            self._transport.write(packed)
        else:
            if joint is None or joint.together is None:
                packed = pack(commands) if joint is None else joint.packed()
                self._queued.append((future, packed, len(commands), None))
            else:
                self._queued.append((future, joint.own, 1, joint))
            if len(self._queued) == 1:
                self._loop.call_soon(self._flush)
            elif len(self._queued) == _MAX_QUEUED:
                self._flush()
        return future

    def _flush(self) -> None:
        """Send the queued requests, joint ones as one command, and skip those cancelled meanwhile."""
        groups: dict[int, list[_Request]] = {}
        for request in self._queued:
            future, _, _, joint = request
            if not future.done():
                groups.setdefault(id(request if joint is None else joint.together), []).append(request)
        self._queued = []
        packed = b""
        for requests in groups.values():
            futures = [future for future, _, _, _ in requests]
            _, sent, count, joint = requests[0]
            if joint is None or joint.together is None:
                self._expect(futures, count)
                packed += sent
            elif len(requests) == 1:
                self._expect(futures, count)
                packed += joint.packed()
            else:
                self._expect(futures, 1, joint.split)
                total = len(joint.together) + len(requests) * joint.count
                packed += b"*%d\r\n%b%b" % (
                    total,
                    joint.together.packed,
                    b"".join([arguments for _, arguments, _, _ in requests]),
                )
        if packed:
            self._transport.write(packed)
        self._close_if_done()

    def _expect(self, futures: list[_Future], count: int, split: _Split | None = None) -> None:
        """Expect `count` more replies; without any data, the first is overdue after the timeout."""
        deadline = self._loop.time() + self._timeout
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._check_deadline)
        self._sent.append((futures, split, count, deadline))

    def data_received(self, data: bytes) -> None:
        """Deliver the complete replies."""
        sent, replies, reader = self._sent, self._replies, self._reader
        self._heard = self._loop.time()
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not UNREAD:
                if not sent:
                    raise redis_errors.ConnectionError(f"unexpected reply: {reply}")
                replies.append(reply)
                futures, split, count, _ = sent[0]
                if len(replies) == count:
                    _resolve(futures, split, replies)
                    sent.popleft()
                    self._replies = replies = []
        except Exception as error:  # such as a malformed reply
            if sent:
                _fail(sent[0][0], error)
            self._break(f"Connection closed after an invalid reply: {error}")
        self._close_if_done()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all waiting tasks."""
        self._lost.set_result(None)
        message = HUNG_UP if exc is None else f"Error while reading from socket: {exc.args}"
        self._break(message)

    def _check_deadline(self) -> None:
        """Break the connection if the server is silent for too long, else set the timer again."""
        self._timer = None
        if self._sent:
            deadline = max(self._sent[0][-1], self._heard + self._timeout)
            if self._loop.time() < deadline:
                self._timer = self._loop.call_at(deadline, self._check_deadline)
            else:
                self._break(f"no reply within {self._timeout:g} s", is_timeout=True)

    def _break(self, message: str, *, is_timeout: bool = False) -> None:
        """Close the socket at once and raise an error in all tasks that wait for a reply."""
        unanswered = self._unanswered()
        self.is_open, self.is_closed = False, True
        self._queued = []
        self._sent.clear()
        if self._transport is not None:
            self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        if unanswered:  # else redis-py need not be imported
            _fail(unanswered, (redis_errors.TimeoutError if is_timeout else redis_errors.ConnectionError)(message))

    def close(self) -> None:
        """Close the socket at once; tasks that wait for a reply get a ConnectionError."""
        self._break(HUNG_UP)

    hang_up = close

    def retire(self) -> None:
        """Accept no more requests and close the socket once all are answered.

        Nobody waits for the replies to cancelled requests.
        """
        self.is_open, self.is_closed = False, True
        if self._transport is not None:
            self._close_if_done()

    async def aclose(self) -> None:
        """Retire this, and wait until the socket is closed if all requests are already answered."""
        self.retire()
        if self._transport is not None and self._transport.is_closing():
            await asyncio.wait([self._lost], timeout=self._timeout)

    def _close_if_done(self) -> None:
        if self.is_closed and all(future.done() for future in self._unanswered()):
            self._transport.close()

    def _unanswered(self) -> list[_Future]:
        return [future for futures, *_ in self._sent for future in futures] + [future for future, *_ in self._queued]
