"""The MCP server over HTTP, where each client has a token."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from scratchbus import Bus
from scratchbus.cli import main
from scratchbus.daemon import listen
from scratchbus.mcp.access_tokens import Tokens
from scratchbus.mcp.app import serve_http
from scratchbus.mcp.identity import Identity
from tests import launcher
from tests.edges.mcp.conftest import ROOT, Agent
from tests.waiting import PATIENCE


class Served(NamedTuple):
    """A running server and its tokens file."""

    url: str
    tokens: Tokens
    process: subprocess.Popen[str]

    def token(self, agent: str = "analyst", **identity: Any) -> str:
        """Return a new token for an agent, on a new page unless one is given."""
        identity = {"page": f"http-{token_hex(6)}", "tools": ["observations"], **identity}
        return self.tokens.add(f"t-{token_hex(6)}", Identity.of(agent, **identity))


@contextmanager
def serving(url: str, file: Path, *options: str) -> Iterator[Served]:
    tokens = Tokens(file)
    tokens.add("first", Identity.of("nobody"))
    arguments = ["mcp", "--http", "0", "--tokens", str(file), "--url", url, "--json", *options]
    process = subprocess.Popen(
        launcher.command("-m", "scratchbus.cli", *arguments),
        cwd=ROOT,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Served(json.loads(process.stdout.readline())["url"], tokens, process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def served(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(embedded_url, tmp_path_factory.mktemp("http") / "tokens.yaml", "--tools", "observations") as running:
        yield running


@asynccontextmanager
async def connected(served: Served, token: str, mode: str = "auto", **headers: str) -> AsyncIterator[Agent]:
    """Connect an agent to the server with a token."""
    headers = {"Authorization": f"Bearer {token}"} | headers
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE, verify=False) as http,  # loads no certificates
        Client(streamable_http_client(served.url, http_client=http), mode=mode) as client,
    ):
        yield Agent(client)


def refusal(url: str, token: str | None, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Send a request without the SDK; return the status and the text of the answer."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, body or json.dumps(ask).encode(), headers)  # noqa: S310  # our own server
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310  # our own server
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        with problem:
            return problem.code, problem.read().decode()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_added_event_has_the_traceparent_of_its_request(served: Served, embedded_url: str, mode: str):
    page, trace = f"http-{token_hex(6)}", f"00-{7:032x}-{9:016x}-01"
    async with connected(served, served.token(page=page), mode, traceparent=trace) as agent:
        added = await agent.do("add_observation", type="observation", content="x")
    with Bus.connect(embedded_url, source="beside") as bus:
        assert [event.traceparent for event in bus.page(page).history(added["id"])] == [trace]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_token_determines_source_and_page(served: Served, mode: str):
    page = f"http-{token_hex(6)}"
    analyst, reviewer = served.token("analyst", page=page), served.token("reviewer", page=page)
    elsewhere = served.token("analyst")
    async with (
        connected(served, analyst, mode) as one,
        connected(served, reviewer, mode) as two,
        connected(served, elsewhere, mode) as three,
    ):
        added = await one.do("add_observation", type="observation", content="The build is red")
        seen = (await two.do("get_observation", id=added["id"]))["observation"]
        assert (added["source"], seen["source"]) == ("analyst", "analyst")
        assert (await two.do("add_observation", type="observation", content="y"))["source"] == "reviewer"
        assert await three.do("list_observations") == {"observations": []}
        assert "your connection sets this" in await one.fail(
            "add_observation", type="observation", content="x", source="reviewer"
        )


@pytest.mark.parametrize("token", [None, "", "sbmcp_wrong", "ключ"])
def test_a_client_without_a_valid_token_is_refused(served: Served, token: str | None):
    encoded = None if token is None else token.encode().decode("latin-1")
    status, text = refusal(served.url, encoded)
    assert status == 401
    assert "Authentication required" in text


def test_a_token_with_none_of_the_offered_tools_is_refused(served: Served):
    status, text = refusal(served.url, served.token(tools=["scratchpad"]))
    assert status == 403
    assert "none of the tools here: observations" in text


async def test_a_tool_that_the_server_does_not_offer_is_refused(served: Served):
    async with connected(served, served.token(tools=["observations", "scratchpad"])) as agent:
        assert "update_scratchpad: your connection has no scratchpad tools" in await agent.fail(
            "update_scratchpad", content="x"
        )
        names = [tool.name for tool in (await agent.client.list_tools()).tools]
        assert "update_scratchpad" not in names


async def test_a_revoked_token_is_refused(served: Served):
    token = served.tokens.add("short-lived", Identity.of("analyst", page=f"http-{token_hex(6)}"))
    async with connected(served, token) as agent:
        await agent.do("list_observations")
    served.tokens.revoke("short-lived")
    assert refusal(served.url, token)[0] == 401


async def test_two_tokens_of_one_name_are_both_served(served: Served):
    secrets = [served.tokens.add(f"twin-{each}", Identity.of("analyst", tools=["observations"])) for each in "ab"]
    served.tokens.path.write_text(served.tokens.path.read_text().replace("twin-b", "twin-a"))
    for secret in secrets:
        async with connected(served, secret) as agent:
            await agent.do("list_observations")


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("is_replaced", [False, True])
def test_the_streams_of_a_revoked_token_end(served: Served, is_replaced: bool):
    name, identity = f"streaming-{token_hex(3)}", Identity.of("analyst", page=f"http-{token_hex(6)}")
    token = served.tokens.add(name, identity)
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info}).encode()
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {token}"}
    asked = urllib.request.Request(served.url, hello, {**headers, "Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:  # noqa: S310  # our own server
        session = answer.headers["mcp-session-id"]
    stream = urllib.request.Request(served.url, headers={**headers, "Mcp-Session-Id": session})  # noqa: S310
    with urllib.request.urlopen(stream, timeout=PATIENCE) as open_stream:  # noqa: S310  # our own server
        served.tokens.revoke(name)
        new = served.tokens.add(name, identity) if is_replaced else served.token()
        begun = time.monotonic()
        open_stream.read()
        assert time.monotonic() - begun < 5
    assert refusal(served.url, new)[0] != 401  # others continue


def test_a_session_cannot_be_used_with_another_token(served: Served):
    mine, theirs = (served.token(page="shared") for _ in range(2))
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(served.url, hello, {**headers, "Authorization": f"Bearer {mine}"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310  # our own server
        session = answer.headers["mcp-session-id"]
    assert refusal(served.url, mine, **{"Mcp-Session-Id": session})[0] == 200
    assert refusal(served.url, theirs, **{"Mcp-Session-Id": session})[0] == 404


def test_invalid_bodies_are_refused_and_the_server_continues(served: Served):
    token = served.token()
    assert refusal(served.url, token, b"hello?")[0] == 400
    assert refusal(served.url, token, rb'{"jsonrpc": "2.0", "id": "\ud800", "method": "ping"}')[0] == 400
    assert refusal(served.url, token)[0] != 401


def test_a_body_beyond_the_limit_is_refused_unread(served: Served):
    address = urlsplit(served.url)
    with closing(HTTPConnection(address.netloc, timeout=PATIENCE)) as connection:
        connection.putrequest("POST", address.path)
        connection.putheader("Authorization", f"Bearer {served.token()}")
        connection.putheader("Content-Length", "5000000")
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_requests_from_web_pages_are_refused(served: Served):
    assert refusal(served.url, served.token(), Host="evil.example")[0] in (403, 421)
    assert refusal(served.url, served.token(), Origin="https://evil.example")[0] == 403


async def test_a_listening_client_is_notified_of_changes(served: Served):
    page = f"http-{token_hex(6)}"
    uri = f"scratch://{page}/active"
    async with (
        connected(served, served.token("analyst", page=page)) as analyst,
        connected(served, served.token("reviewer", page=page)) as reviewer,
        reviewer.client.listen(resource_subscriptions=[uri]) as heard,
    ):
        await analyst.do("add_observation", type="observation", content="x")
        with anyio.fail_after(PATIENCE):
            assert (await anext(aiter(heard))).uri == uri


@pytest.mark.slow
@pytest.mark.alone
async def test_a_signal_ends_a_server_with_a_listening_client(embedded_url: str, tmp_path: Path):
    codes, took = [], []
    with serving(embedded_url, tmp_path / "tokens.yaml") as running:
        with suppress(Exception):  # its stream ends early
            async with (
                connected(running, running.token(page="main")) as agent,
                agent.client.listen(resource_subscriptions=["scratch://main/active"]),
            ):
                begun = time.monotonic()
                running.process.send_signal(signal.SIGTERM)
                codes.append(await anyio.to_thread.run_sync(running.process.wait, PATIENCE))
                took.append(time.monotonic() - begun)
        log = running.process.stderr.read()
    assert codes == [0]
    assert took[0] < PATIENCE / 3, "the server waited for its client to leave"
    assert "Traceback" not in log


def test_a_signal_ends_a_starting_server():
    code = """
import os, signal, sys
from contextlib import asynccontextmanager
import anyio
from scratchbus.daemon import listen
from scratchbus.mcp.app import serve_http
from starlette.applications import Starlette

@asynccontextmanager
async def starting():
    async with anyio.create_task_group():
        os.kill(os.getpid(), signal.SIGTERM)
        yield Starlette()

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # as the command does
anyio.run(serve_http, starting(), listen("0").socket, lambda: None)
"""
    done = subprocess.run(
        [*launcher.command("-c", code)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (b"", 0),
        (b"GET /mcp HTTP/1.1\r\nHost: x\r\n", 0),
        (b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n", 1),
        pytest.param(b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\nGET /mcp HTTP/1.1\r\nHos", 1, marks=pytest.mark.slow),
        (b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", 0),
    ],
    ids=["nothing", "a part", "a request", "a part of the second", "a part of a body"],
)
async def test_a_connection_is_closed_unless_it_sends_requests(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, answers: int
):
    """A request may take longer than that: this one does."""
    monkeypatch.setattr("scratchbus.mcp.app.HEAD_SECONDS", 0.5)  # a stalled process sends its head later

    @asynccontextmanager
    async def slow() -> AsyncIterator[ASGIApp]:
        async def answer(request: Request) -> Response:
            with suppress(ClientDisconnect):
                await request.body()
            await anyio.sleep(1.2)
            return Response("done")

        yield Starlette(routes=[Route("/mcp", answer, methods=["GET", "POST"])])

    listener, ready, received = listen("0"), anyio.Event(), b""
    with listener.socket, anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_http, slow(), listener.socket, ready.set)
            await ready.wait()
            async with await anyio.connect_tcp("127.0.0.1", listener.port) as connection:
                await connection.send(sent)
                async for chunk in connection:
                    received += chunk
            tasks.cancel_scope.cancel()
    assert received.count(b"done") == answers


def test_a_head_without_end_is_refused(served: Served):
    address = urlsplit(served.url)
    headers = b"".join(b"X-%d: %b\r\n" % (number, b"x" * 8_000) for number in range(4_000))
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /mcp HTTP/1.1\r\n")
        connection.sendall(headers)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--http", "8000"), 2, "--tokens"),
        (("--http", "8000", "--tokens", "{none}"), 5, "scratchbus mcp token add"),
        (("--http", "8000", "--tokens", "{bad}"), 5, "bad.yaml:3:3: tokens[0].sha256"),
        (("--http", "where", "--tokens", "{good}"), 5, "HOST:PORT"),
        (("--http", "8000", "--tokens", "{good}", "--tools", "everything"), 5, "unknown group 'everything'"),
        (("--http", "0", "--tokens", "{good}", "--url", "nonsense"), 5, "'nonsense' is not an engine URL"),
        (("--http", "{taken}", "--tokens", "{good}"), 5, "another port or host"),
        (("--http", "8000", "--tokens", "{good}", "--agent", "a"), 2, "are set by the token; leave out --agent"),
        (("--http", "8000", "--tokens", "{good}", "--kind", "person"), 2, "are set by the token; leave out --agent"),
        (("--http", "8000", "--tokens", "{good}", "--source", "a"), 2, "are set by the token; leave out --agent"),
        (("--agent", "a", "--tokens", "{good}"), 2, "give --http too, or leave it out"),
        (("--agent", "a", "--metrics-host", "10.0.0.1"), 2, "--metrics-host needs --metrics-port"),
    ],
)
def test_a_server_that_cannot_start_gives_a_one_line_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int, message: str
):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    Tokens(good).add("a", Identity.of("a"))
    bad.write_text("tokens:\n- name: a\n  sha256: abc\n  agent: no spaces\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        values = {"none": tmp_path / "none.yaml", "good": good, "bad": bad, "taken": listener.getsockname()[1]}
        assert main(["mcp", *(option.format(**values) for option in options)]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


async def test_tokens_of_one_agent_do_not_share_claims(served: Served):
    page = f"http-{token_hex(6)}"
    first, second = (served.token(page=page) for _ in range(2))
    async with connected(served, first) as one, connected(served, second) as two, connected(served, first) as again:
        id = (await one.do("add_observation", type="observation", content="x"))["id"]
        fence = (await one.do("claim_observation", id=id))["fence"]
        assert "is claimed by analyst until" in await two.fail("resolve_observation", id=id, fence=fence)
        assert (await again.do("resolve_observation", id=id, fence=fence))["status"] == "resolved"
