"""Clients that still send a request that the MCP server has refused: each can read its answer, and none stays long."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from scratchbus.daemon import lingering, listen
from scratchbus.mcp import app
from tests.edges.http.raw import Answer
from tests.waiting import PATIENCE, eventually

SIZE = 10 * 2**20
BODY = b" " * SIZE
OF_SIZE = b"Content-Length: %d" % SIZE
CHUNKED = b"Transfer-Encoding: chunked"
CLOSE = b"Connection: close"


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set no limits to lingering, and let this process live when the server ends."""
    monkeypatch.setattr(app, "exit_within", lambda seconds: None)
    for name in ("IDLE_SECONDS", "TOTAL_SECONDS", "MAX_BYTES"):
        monkeypatch.setattr(lingering, name, 2**40)


@pytest.fixture
def gone() -> list[str]:
    """The requests whose clients have left."""
    return []


async def talk(gone: list[str], client: Callable[[int], None]) -> None:
    """Run a blocking client against a server that refuses DELETE, and reads the bodies of POST."""

    async def answer(request: Request) -> Response:
        if request.method == "DELETE":
            return PlainTextResponse("refused " + "x" * 1_000, 401)
        try:
            return PlainTextResponse(f"{len(await request.body())} bytes")
        except ClientDisconnect:
            gone.append(request.method)
            return PlainTextResponse("too late")

    @asynccontextmanager
    async def refusing() -> AsyncIterator[ASGIApp]:
        yield Starlette(routes=[Route("/mcp", answer, methods=["DELETE", "POST"])])

    listener, ready = listen("0"), anyio.Event()
    with listener.socket, anyio.fail_after(3 * PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.serve_http, refusing(), listener.socket, ready.set)
            await ready.wait()
            await anyio.to_thread.run_sync(client, listener.port)
            signal.raise_signal(signal.SIGTERM)  # unlike a cancellation, it closes what is open


def connect(port: int, method: bytes, *lines: bytes, rest: bytes = b"") -> socket.socket:
    """Send the head of a request, and what follows."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(b"\r\n".join([method + b" /mcp HTTP/1.1", b"Host: x", *lines, b"", rest]))
    return connection


def read_all(connection: socket.socket, found: bytes = b"") -> Answer:
    """Return the only answer; read until the server closes its half."""
    while data := connection.recv(65536):
        found += data
    answer = Answer(found)
    assert len(answer.body) == int(answer.headers.get("content-length", len(answer.body)))
    return answer


@pytest.mark.parametrize(
    ("lines", "body"),
    [((CLOSE, OF_SIZE), BODY), ((CLOSE, CHUNKED), b"%x\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY))],
    ids=["of a size", "chunked"],
)
async def test_a_refusal_is_read_after_the_whole_body_was_sent(gone, lines, body):
    def client(port: int) -> None:
        for _ in range(20):
            with connect(port, b"DELETE", *lines) as connection:
                connection.sendall(body)
                assert read_all(connection).status == 401

    await talk(gone, client)


@pytest.mark.parametrize("rest", [b"", b"4\r\ntrue\r\nnot a size\r\n"], ids=["later", "with its head"])
async def test_an_invalid_body_is_refused_once(gone, caplog, rest):
    def client(port: int) -> None:
        with connect(port, b"POST", CHUNKED, rest=rest) as connection:
            connection.sendall(b"4\r\ntrue\r\nnot a size\r\n" + BODY)
            answer = read_all(connection)
            assert (answer.status, answer.text.count(b"HTTP/1.1 ")) == (400, 1)
            eventually(lambda: gone)

    await talk(gone, client)
    assert [record for record in caplog.records if record.levelno > logging.WARNING] == []


async def test_an_invalid_rest_of_a_refused_body_is_not_answered(gone, caplog):
    def client(port: int) -> None:
        with connect(port, b"DELETE", CHUNKED) as connection:
            found = b""
            while not found.endswith(b"x" * 1_000):
                found += connection.recv(65536)
            connection.sendall(b"not a size\r\n" + BODY)
            assert read_all(connection, found).status == 401

    await talk(gone, client)
    assert [record for record in caplog.records if record.levelno > logging.WARNING] == []


@pytest.mark.parametrize(
    "start", [b"GET /mcp HTTP/1.1\r\nX: ", b"\x16\x03\x01 not a request\r\n\r\n"], ids=["endless", "garbage"]
)
async def test_a_refusal_is_read_after_the_whole_head_was_sent(gone, start):
    def client(port: int) -> None:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
                connection.sendall(start + b"x" * SIZE)
                assert read_all(connection).status == 400

    await talk(gone, client)


@pytest.mark.parametrize(("limit", "value"), [("TOTAL_SECONDS", 0.2), ("MAX_BYTES", SIZE)])
async def test_a_client_whose_head_has_no_end_is_dropped(gone, monkeypatch, limit, value):
    monkeypatch.setattr(lingering, limit, value)

    def client(port: int) -> None:
        with connect(port, b"GET", b"X: " + BODY[: 2**20]) as connection:
            assert read_all(connection).status == 400
            eventually(lambda: is_lost(connection))

    await talk(gone, client)


@pytest.mark.parametrize(("limit", "value"), [("TOTAL_SECONDS", 0.2), ("MAX_BYTES", SIZE)])
async def test_a_client_that_goes_on_sending_is_dropped(gone, monkeypatch, limit, value):
    monkeypatch.setattr(lingering, limit, value)

    def client(port: int) -> None:
        with connect(port, b"DELETE", CLOSE, b"Content-Length: 999999999999") as connection:
            assert read_all(connection).status == 401
            eventually(lambda: is_lost(connection))

    await talk(gone, client)


async def test_a_client_that_sends_no_body_is_dropped(gone, monkeypatch):
    monkeypatch.setattr(app, "HEAD_SECONDS", 0.05)

    def client(port: int) -> None:
        with connect(port, b"POST", OF_SIZE) as connection:
            assert connection.recv(65536) == b""
            eventually(lambda: is_lost(connection))

    await talk(gone, client)


async def test_a_server_that_ends_closes_at_once(gone):
    connections = []

    def client(port: int) -> None:
        connections.append(connect(port, b"DELETE", CLOSE, OF_SIZE))
        assert read_all(connections[0]).status == 401

    await talk(gone, client)
    with connections[0] as connection:
        eventually(lambda: is_lost(connection))


def is_lost(connection: socket.socket) -> bool:
    """Return whether the server has closed a connection."""
    with suppress(ConnectionError):
        connection.sendall(BODY[:65536])
        return False
    return True
