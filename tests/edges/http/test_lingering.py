"""Clients that still send a request that is answered: each can read its answer, and none stays for long."""

from __future__ import annotations

import json
import select
import socket
import ssl
from asyncio import TimerHandle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
import trustme
from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from scratchbus.daemon import LingeringTransport, lingering
from scratchbus.http import client_connections, problems
from scratchbus.http.client_connections import Protocol
from scratchbus.http.guard import MAX_PUBLIC_BODY
from tests.edges.http.conftest import Served, serving_here
from tests.edges.http.raw import Answer, head
from tests.waiting import PATIENCE, eventually

NEVER = 3_600
SECONDS = 0.2
SIZE = 4 * 2**20
BODY = b" " * SIZE
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY)
TOO_LONG = ("POST /api/v1/login HTTP/1.1", f"Content-Length: {SIZE}")


@contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    """Connect to a server."""
    where = urlsplit(served.url)
    with socket.create_connection((where.hostname, where.port), timeout=PATIENCE) as connection:
        yield connection


def wait_for_answer(connection: socket.socket) -> None:
    """Wait until there is something to read."""
    assert select.select([connection], [], [], PATIENCE)[0]


def read_all(connection: socket.socket, found: bytes = b"") -> Answer:
    """Return the only answer, of which a part is found already; read until the server closes its half."""
    while data := connection.recv(65536):
        found += data
    answer = Answer(found)
    assert len(answer.body) == int(answer.headers["content-length"])  # whole, and nothing after it
    return answer


@contextmanager
def answered(served: Served, how: str) -> Iterator[socket.socket]:
    """Connect and read the answer to a request before its body is sent."""
    with connected(served) as connection:
        host = urlsplit(served.url).netloc
        connection.sendall(f"POST /api/v1/nothing HTTP/1.1\r\nHost: {host}\r\n{how}\r\n\r\n".encode())
        found = b""
        while not found.endswith(b"}"):
            found += connection.recv(65536)
        assert Answer(found).status == 404
        yield connection


@pytest.fixture(scope="module")
def here(embedded_url: str) -> Iterator[Served]:
    """A server in this process."""
    with serving_here(embedded_url) as running:
        yield running


@pytest.fixture
def is_lost(monkeypatch: pytest.MonkeyPatch) -> Callable[[socket.socket], bool]:
    """A function that returns whether the server has closed a connection."""
    ports = set()
    connection_lost = Protocol.connection_lost

    def noted(self: Protocol, exc: Exception | None) -> None:
        assert self.client is not None
        ports.add(self.client[1])
        connection_lost(self, exc)

    monkeypatch.setattr(Protocol, "connection_lost", noted)
    return lambda connection: connection.getsockname()[1] in ports


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that sets limits of lingering; there are no others."""

    def limit(idle: float = NEVER, total: float = NEVER, size: int = 2**40) -> None:
        monkeypatch.setattr(lingering, "IDLE_SECONDS", idle)
        monkeypatch.setattr(lingering, "TOTAL_SECONDS", total)
        monkeypatch.setattr(lingering, "MAX_BYTES", size)

    limit()
    return limit


def drip(connection: socket.socket, is_over: Callable[[], object]) -> None:
    """Send byte by byte until the condition holds."""

    def is_over_now() -> bool:
        with suppress(ConnectionError):
            connection.sendall(b" ")
        return bool(is_over())

    eventually(is_over_now)


class TestAnswers:
    """A client that sends everything before it reads."""

    @pytest.mark.parametrize(
        ("lines", "rest", "status"),
        [
            (TOO_LONG, BODY, 413),
            ((TOO_LONG[0], "Transfer-Encoding: chunked"), CHUNKED, 413),
            ((TOO_LONG[0], f"Content-Length: {MAX_PUBLIC_BODY}0"), BODY, 413),  # the rest may be another request
            (("POST /api/v1/nothing HTTP/1.1", f"Content-Length: {SIZE}"), BODY, 404),
            (("POST /api/v1/nothing HTTP/1.1", "Transfer-Encoding: chunked"), CHUNKED, 404),
            (("POST /api/v1/login HTTP/1.1", "Origin: https://evil.example", f"Content-Length: {SIZE}"), BODY, 403),
            (("POST /api/v1/login HTTP/1.1", "Host: evil.example", f"Content-Length: {SIZE}"), BODY, 421),
            (("POST /api/v1/login HTTP/1.1", "Expect: 100-continue", f"Content-Length: {SIZE}"), BODY, 413),
            (("POST /api/v1/login HTTP/1.1", "Content-Length: +4"), BODY, 400),
            (("POST /api/v1/login HTTP/1.1", "X: " + "a" * 70_000, f"Content-Length: {SIZE}"), BODY, 431),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_a_refusal_is_read_after_the_whole_body_was_sent(self, served, lines, rest, status):
        with connected(served) as connection:
            connection.sendall(head(served.url, *lines))
            if lines[1] == "Transfer-Encoding: chunked":
                connection.sendall(rest[: 2 * MAX_PUBLIC_BODY])
                rest = rest[2 * MAX_PUBLIC_BODY :]
            wait_for_answer(connection)
            connection.sendall(rest)
            answer = read_all(connection)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert json.loads(answer.body)["status"] == status

    @pytest.mark.parametrize(
        ("start", "status"),
        [(b"GET /healthz HTTP/1.1\r\nX: ", 431), (b"GET /", 431), (b"\x16\x03\x01 not a request\r\n\r\n", 400)],
        ids=["headers", "URL", "garbage"],
    )
    def test_a_refusal_is_read_after_the_whole_head_was_sent(self, served, start, status):
        for _ in range(20):
            with connected(served) as connection:
                connection.sendall(start + b"x" * SIZE)
                assert read_all(connection).status == status

    def test_a_refusal_is_read_if_the_server_has_paused_reading(self, here, limited):
        with connected(here) as connection:
            connection.sendall(head(here.url, "POST /api/v1/nothing HTTP/1.1", f"Content-Length: {SIZE}") + BODY)
            assert read_all(connection).status == 404

    def test_a_refusal_alone_is_read_over_tls(self, embedded_url, limited):
        authority = trustme.CA()
        ours, theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
        authority.issue_cert("127.0.0.1").configure_cert(ours)
        authority.configure_trust(theirs)
        limited(idle=SECONDS)
        with (
            serving_here(embedded_url, tls=ours) as running,
            connected(running) as connection,
            theirs.wrap_socket(connection, server_hostname="127.0.0.1") as secure,
        ):
            secure.sendall(head(running.url, *TOO_LONG).replace(b"close", b"keep-alive"))
            found = secure.recv(65536)
            secure.sendall(BODY + head(running.url, "GET /healthz HTTP/1.1"))
            assert read_all(secure, found).status == 413

    def test_a_client_that_waits_for_100_continue_reads_the_end_at_once(self, here, limited):
        with connected(here) as connection:
            connection.sendall(head(here.url, *TOO_LONG, "Expect: 100-continue"))
            assert read_all(connection).status == 413

    def test_nothing_after_a_refused_request_is_answered(self, here, limited, is_lost):
        request = head(here.url, "GET /healthz HTTP/1.1")
        with connected(here) as connection:
            connection.sendall(head(here.url, *TOO_LONG).replace(b"close", b"keep-alive"))
            wait_for_answer(connection)
            connection.sendall(BODY + request)
            assert read_all(connection).status == 413
            connection.sendall(request)
            assert not is_lost(connection)

    def test_a_connection_stays_open_after_an_answer_to_a_part_of_a_request(self, here):
        with answered(here, f"Content-Length: {SIZE}") as connection:
            connection.sendall(BODY + head(here.url, "GET /healthz HTTP/1.1"))
            assert read_all(connection).status == 200


class TestLimits:
    """Clients that would hold a connection after its answer."""

    def test_the_default_limits(self):
        assert 1 <= lingering.IDLE_SECONDS <= 2 < lingering.TOTAL_SECONDS <= 10
        assert 10 <= client_connections.DISCARD_SECONDS <= 60

    def test_a_client_that_sends_nothing_more_is_dropped(self, here, limited, is_lost):
        limited(idle=SECONDS)
        with connected(here) as connection:
            connection.sendall(head(here.url, *TOO_LONG))
            eventually(lambda: is_lost(connection))

    def test_a_client_that_sends_slowly_is_kept(self, monkeypatch):
        clock = Mock(**{"time.return_value": 0.0})
        monkeypatch.setattr(lingering, "get_running_loop", lambda: clock)
        connection = Mock(**{"is_closing.return_value": False})
        transport = LingeringTransport(connection)

        def look() -> float:
            """Let the time of the next look come, and return it."""
            at: float
            at, check = clock.call_at.call_args.args
            clock.time.return_value = at
            check()
            return at

        transport.linger()
        clock.time.return_value = 1.5
        transport.discard(b" ")
        assert look() == lingering.IDLE_SECONDS
        connection.close.assert_not_called()
        assert look() == 1.5 + lingering.IDLE_SECONDS
        connection.close.assert_called_once()

    def test_a_client_that_leaves_is_dropped(self, here, limited, is_lost):
        with connected(here) as connection:
            connection.sendall(head(here.url, *TOO_LONG))
            assert read_all(connection).status == 413
            assert not is_lost(connection)
            connection.shutdown(socket.SHUT_WR)
            eventually(lambda: is_lost(connection))

    def test_a_client_that_sends_byte_by_byte_is_dropped(self, here, limited, is_lost):
        limited(total=SECONDS)
        with connected(here) as connection:
            connection.sendall(head(here.url, *TOO_LONG))
            drip(connection, lambda: is_lost(connection))

    def test_a_client_that_sends_too_much_is_dropped(self, here, limited):
        limited(size=SIZE)
        with connected(here) as connection:
            connection.sendall(head(here.url, *TOO_LONG))
            with pytest.raises(ConnectionError):
                connection.sendall(20 * BODY)

    def test_a_refused_head_is_not_late_too(self, here, limited, is_lost, monkeypatch, caplog):
        monkeypatch.setattr(client_connections, "HEAD_SECONDS", SECONDS)
        limited(total=2 * SECONDS)
        with connected(here) as connection:
            connection.sendall(b"GET /" + b"a" * 80_000)
            assert read_all(connection).status == 431
            drip(connection, lambda: is_lost(connection))
        assert caplog.records == []

    @pytest.mark.parametrize("end", ["Connection: close", "Connection: keep-alive"])
    def test_a_server_that_ends_closes_at_once(self, embedded_url, limited, is_lost, end):
        with ExitStack() as opened:
            with serving_here(embedded_url) as running:
                connection = opened.enter_context(answered(running, f"{end}\r\nContent-Length: {SIZE}"))
            assert is_lost(connection)

    def test_a_refused_request_is_no_longer_served(self, here, page, limited, is_lost, monkeypatch, caplog):
        failed: list[type[Exception]] = []
        answer_to = problems.answer_to

        async def noted(request: Request, error: Exception) -> Response:
            failed.append(type(error))
            return await answer_to(request, error)

        monkeypatch.setattr(problems, "answer_to", noted)
        monkeypatch.setattr(client_connections, "MAX_MESSAGE", 2**18)
        with connected(here) as connection:
            path = f"/api/v1/pages/{page}/observations"
            connection.sendall(head(here.url, f"POST {path} HTTP/1.1", f"Content-Length: {SIZE}") + BODY[: 2**19])
            assert read_all(connection).status == 413
            eventually(lambda: failed)
            assert not is_lost(connection)
        assert failed == [ClientDisconnect]
        assert caplog.records == []

    def test_a_refusal_is_not_written_into_another_answer(self, here):
        host = f"Host: {urlsplit(here.url).netloc}\r\n\r\n".encode()
        with connected(here) as connection:
            connection.sendall(b"GET /api/v1/events HTTP/1.1\r\nAccept: text/event-stream\r\n" + host)
            wait_for_answer(connection)
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + host + b"not a request\r\n\r\n")
            found = b""
            while data := connection.recv(65536):
                found += data
        assert found.startswith(b"HTTP/1.1 200 ")
        assert found.count(b"HTTP/1.1 ") == 1


class TestDiscarding:
    """Clients that go on sending an answered request on a connection that is to stay open."""

    def test_an_endless_body_is_not_answered_again(self, here, limited, monkeypatch):
        monkeypatch.setattr(client_connections, "MAX_MESSAGE", 2**18)
        with answered(here, f"Content-Length: {SIZE}") as connection:
            connection.sendall(BODY)
            assert connection.recv(1) == b""

    def test_an_invalid_body_is_not_answered_again(self, here):
        with answered(here, "Transfer-Encoding: chunked") as connection:
            connection.sendall(b"not a size\r\n")
            assert connection.recv(1) == b""

    def test_a_slow_body_is_cut_off(self, here, limited, monkeypatch):
        monkeypatch.setattr(client_connections, "DISCARD_SECONDS", SECONDS)
        with answered(here, f"Content-Length: {SIZE}") as connection:
            drip(connection, lambda: select.select([connection], [], [], 0)[0])
            assert connection.recv(1) == b""

    def test_a_connection_is_closed_if_no_request_follows(self, here, monkeypatch):
        monkeypatch.setattr(client_connections, "HEAD_SECONDS", SECONDS)
        with answered(here, "Content-Length: 4") as connection:
            connection.sendall(b"true")
            assert connection.recv(1) == b""

    def test_the_next_request_has_its_own_time(self, here, monkeypatch):
        monkeypatch.setattr(client_connections, "DISCARD_SECONDS", NEVER)
        waits: dict[bytes, TimerHandle | None] = {}
        data_received = Protocol.data_received

        def noted(self: Protocol, data: bytes) -> None:
            data_received(self, data)
            waits[data] = self._late

        monkeypatch.setattr(Protocol, "data_received", noted)
        with answered(here, "Content-Length: 4") as connection:
            for part in (b"tru", b"eGET /healthz HTTP/1.1\r\n"):
                connection.sendall(part)
                eventually(partial(waits.__contains__, part))
            of_body, of_head = list(waits.values())[-2:]
            assert of_body is not None
            assert of_body.cancelled()
            assert of_head is not None
            assert of_body.when() - of_head.when() > NEVER / 2
            connection.sendall(f"Host: {urlsplit(here.url).netloc}\r\n\r\n".encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
