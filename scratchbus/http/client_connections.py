"""Connections: limits on the bytes before a request is parsed, on waiting, and on stalled clients."""

from __future__ import annotations

import socket
from asyncio import BaseTransport, TimerHandle, Transport
from itertools import chain
from typing import Any, Final, cast

import httptools
from starlette.types import ASGIApp, Receive
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from scratchbus.daemon import LingeringTransport
from scratchbus.http.peer_users import NOBODY, uid_of
from scratchbus.http.problems import Refusal, refusal

HEAD_SECONDS: Final = 10.0
"""The seconds for the head of a request to arrive, from its first byte, the connection's start, or a discarded body."""

DISCARD_SECONDS: Final = 30.0
"""The seconds in which the rest of an answered request has to arrive for its connection to stay open."""

MAX_HEAD: Final = 64 * 2**10
"""The most bytes of the head of a request: its URL and headers."""

MAX_MESSAGE: Final = 40 * 2**20
"""The most bytes of a request on the wire, including chunk framing and trailers."""

STALLED_SECONDS: Final = 60.0
"""The seconds after which a client that reads none of its answer is dropped."""


class ClientConnection:
    """One connection of a client."""

    def __init__(self, transport: BaseTransport) -> None:
        self._transport = transport
        self._uid: int | None = None

    def peer_uid(self) -> int | None:
        """Return the user whose process made the connection, NOBODY once it has closed its end.

        Returns None where the kernel does not tell.
        """
        if self._uid is None:
            found = uid_of(self._transport.get_extra_info("socket"))
            if found == NOBODY:
                return found
            self._uid = found
        return self._uid

    def limit_buffers(self, size: int) -> None:
        """Limit the bytes buffered for a client to about this many; do nothing if it has disconnected."""
        transport = cast(Transport, self._transport)  # uvloop's does not say so
        if transport.is_closing():
            return
        transport.set_write_buffer_limits(size)
        found: socket.socket | None = transport.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * size)

    def abort(self) -> None:
        """Close it at once, whatever waits to be sent."""
        cast(Transport, self._transport).abort()


async def wait_until_gone(receive: Receive) -> None:
    """Wait until the client of a request has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


class _Parser(httptools.HttpRequestParser):
    """Parses requests; `offset` is where one that offers another protocol ended in the bytes it was fed last."""

    offset: int | None = None

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # as uvicorn calls it
        """Parse bytes. Raises HttpParserError, and HttpParserUpgrade after the head of such a request."""
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.offset = upgrade.args[0]
            raise

    @property
    def offers_upgrade(self) -> bool:
        """Whether a request offers another protocol, such as h2c; it is served as any other (RFC 9110, 7.8)."""
        return self.should_upgrade() and self.get_method() != b"CONNECT"


class Protocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, with limits; the `state` of a request has its "connection"."""

    parser: _Parser

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        """Note the connection, and wait for the head of a request."""
        self._lingering = LingeringTransport(transport)
        super().connection_made(cast(Transport, self._lingering))
        self.parser = _new_parser(self)
        self.app_state: dict[str, Any] = {**self.app_state, "connection": ClientConnection(transport)}
        self._is_head = True
        self._size = 0
        self._problem: Refusal | None = None
        self._stalled: TimerHandle | None = None
        self._served: RequestResponseCycle | None = None
        self._late: TimerHandle | None = self.loop.call_later(HEAD_SECONDS, self._end_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self.resume_writing()
        self._disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if self.transport.is_closing():
            self._lingering.discard(data)
            return
        self._size += len(data)
        self._is_head = not self._lingering.in_body  # bytes between two requests belong to the head of the next
        super().data_received(data)
        while self.parser.offset is not None and self.parser.offers_upgrade:  # as of each request of Java's HTTP client
            data = self._head_without_offer() + data[self.parser.offset :]
            self.parser = _new_parser(self)  # the other would leave out the body
            super().data_received(data)
        if self.transport.is_closing():
            return
        if not (self._is_head or self.cycle.response_complete):
            self._stop_waiting()
        elif self._late is None:
            seconds = DISCARD_SECONDS if self._lingering.in_body else HEAD_SECONDS
            self._late = self.loop.call_later(seconds, self._end_late)
        if self._is_head and self._size > MAX_HEAD:
            self._refuse(_too_long())
        elif self._lingering.in_body and self._size > MAX_MESSAGE:
            self._refuse(Refusal(413, "body-too-large", f"the request is larger than {MAX_MESSAGE:,} bytes"))

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._is_head = True

    def on_headers_complete(self) -> None:
        """Serve a request whose head is there."""
        if self.parser.offers_upgrade:
            return  # it comes again without the offer
        if len(self.url) + sum(map(len, chain.from_iterable(self.headers))) > MAX_HEAD:
            self._problem = _too_long()
            raise self._problem
        super().on_headers_complete()
        self._is_head, self._lingering.in_body = False, True

    def on_message_complete(self) -> None:
        """Note that a request is whole."""
        if self.parser.offers_upgrade:
            return
        self._lingering.in_body = False
        self._size = 0
        self._stop_waiting()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:  # type: ignore[override]
        self._served = cycle  # later ones wait
        super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]  # as uvicorn types applications

    def shutdown(self) -> None:
        """End with the server: let an answer finish, but do not linger."""
        self._lingering.stop_lingering()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid requests."""
        self._refuse(self._problem or Refusal(400, "bad-request", "this is not a valid HTTP/1.1 request"))

    def pause_writing(self) -> None:
        """Drop the client unless it reads on in time."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client reads on."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _end_late(self) -> None:
        self._late = None
        if self._size:
            self._refuse(Refusal(408, "request-timeout", f"the request did not arrive within {HEAD_SECONDS:g} s"))
        else:
            self.transport.close()  # nothing was asked

    def _refuse(self, problem: Refusal) -> None:
        """Send a problem, unless another answer has begun or was sent already, and close the connection."""
        self._stop_waiting()
        is_answering = any(cycle.response_started for cycle in self._unanswered())
        if not (is_answering or self._is_discarding):
            answer = refusal(problem)
            lines = [b"HTTP/1.1 %d \r\nconnection: close\r\n" % problem.status]
            lines += [b"%s: %s\r\n" % header for header in answer.raw_headers]
            self.transport.write(b"".join([*lines, b"\r\n", bytes(answer.body)]))
        self._disconnect()
        self._lingering.linger()

    @property
    def _is_discarding(self) -> bool:
        """Whether the body that arrives is that of an answered request."""
        return self._lingering.in_body and self.cycle.response_complete

    def _unanswered(self) -> list[RequestResponseCycle]:
        """Return the requests without a whole answer: the one that is served, and the last one."""
        cycles: tuple[RequestResponseCycle | None, ...] = (self._served, self.cycle)  # None before the first
        return [cycle for cycle in cycles if cycle is not None and not cycle.response_complete]

    def _disconnect(self) -> None:
        """End the requests without a whole answer."""
        for cycle in self._unanswered():
            cycle.disconnected = True
            cycle.message_event.set()

    def _head_without_offer(self) -> bytes:
        """Return the head of the request parsed last, without its offer of another protocol."""
        first = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        lines = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([first, *lines, b"", b""])

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _new_parser(protocol: Protocol) -> _Parser:
    parser = _Parser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
    return parser


def _too_long() -> Refusal:
    return Refusal(431, "headers-too-large", f"the URL and headers are larger than {MAX_HEAD:,} bytes; send less")
