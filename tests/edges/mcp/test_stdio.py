"""The server as a process, over standard input and output."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest

import scratchbus
from scratchbus import Bus
from scratchbus.cli import main
from scratchbus.mcp.stdio import _Partial
from tests import launcher
from tests.edges.mcp.conftest import ROOT, in_server_process
from tests.waiting import PATIENCE, eventually

SOON = 5.0
"""Seconds within which the server must end."""


class Raw:
    """A client that sends exactly the given lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        document: dict[str, Any] = json.loads(self.process.stdout.readline())
        return document

    def ask(self, id: int, method: str, **params: Any) -> dict[str, Any]:
        self.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode())
        return self.receive()

    def call(self, id: int, tool: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.ask(id, "tools/call", name=tool, arguments=arguments)["result"]
        return result

    def initialize(self) -> None:
        info = {"name": "raw", "version": "1"}
        self.ask(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')


@contextmanager
def raw(url: str, *options: str) -> Iterator[Raw]:
    process = subprocess.Popen(
        launcher.command("-m", "scratchbus.cli", "mcp", "--url", url, *options),
        cwd=ROOT,
        env=dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:  # closes the pipes
        try:
            yield Raw(process)
        finally:
            process.kill()


def seconds_until_end(process: subprocess.Popen[bytes]) -> float:
    """Wait for the end of the process and return the seconds it took."""
    begun = time.monotonic()
    assert process.wait(PATIENCE) == 0
    return time.monotonic() - begun


def unread(pipe: IO[bytes]) -> int:
    """Return the number of bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_works_through_a_server_process(embedded_url: str, page_name: str, mode: str):
    async with in_server_process(embedded_url, "--agent", "analyst", "--page", page_name, mode=mode) as agent:
        assert agent.client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        assert f"You are analyst on scratchbus, page {page_name}, session " in (agent.client.instructions or "")
        added = await agent.do("add_observation", type="observation", content="The build is red")
        (active,) = (await agent.do("get_active_observations"))["observations"]
    assert active["id"] == added["id"]
    with Bus.connect(embedded_url) as bus:
        assert bus.page(page_name).get(added["id"]).source == "analyst"


async def test_each_process_without_a_session_starts_a_new_one(embedded_url: str, page_name: str):
    sessions = set()
    for _ in range(2):
        async with in_server_process(embedded_url, "--agent", "analyst", "--page", page_name) as agent:
            assert (await agent.do("read_notepad"))["content"] == ""
            await agent.do("write_notepad", content="mine")
            sessions.add((await agent.do("whoami"))["session"])
    assert len(sessions) == 2


def test_an_invalid_message_gets_an_error_and_the_server_continues(embedded_url: str, page_name: str):
    call = '{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add_observation", "arguments": %s}}'
    half = call % r'{"type": "observation", "content": "half \ud800 a pair"}'
    with raw(embedded_url, "--agent", "analyst", "--page", page_name) as client:
        client.initialize()
        client.send(half.encode())
        refused = client.receive()
        assert (refused["id"], refused["error"]["code"]) == (7, -32700)
        client.send(half.encode().replace(rb"\ud800", b"\xff\xfe"))
        assert (client.receive())["error"]["code"] == -32700
        client.send((call % f'{{"type": "observation", "content": "x", "times": {"9" * 5_000}}}').encode())
        refused = client.receive()
        assert (refused["id"], refused["error"]["code"]) == (7, -32700)
        assert "number out of range" in refused["error"]["message"]
        client.send(b'{"jsonrpc": "2.0", "id": 7}')
        refused = client.receive()
        assert (refused["id"], "it has no method" in refused["error"]["message"]) == (7, True)
        client.send(b'{"jsonrpc": "2.0", "id": true, "method": "ping"}')
        assert client.receive()["id"] is None
        client.send(b"hello?")
        refused = client.receive()
        assert refused.get("id") is None
        assert "nothing was done" in refused["error"]["message"]
        assert client.call(8, "list_observations")["structuredContent"] == {"observations": []}
        huge = client.call(9, "add_observation", type="observation", content="x" * 5_000_000)
        assert huge["isError"] is True
        assert not client.call(10, "add_observation", type="observation", content="ok").get("isError")


@pytest.mark.alone
def test_the_time_for_a_message_grows_linearly_with_its_length(page_name: str):
    def took(client: Raw, megabytes: int) -> float:
        begun = time.monotonic()
        assert client.call(megabytes, "add_observation", type="observation", content="x" * megabytes * 2**20)["isError"]
        return time.monotonic() - begun

    with raw(f"memory://{page_name}", "--agent", "analyst") as client:
        client.initialize()
        took(client, 1)
        short, long = (min(took(client, megabytes) for _ in range(3)) for megabytes in (2, 16))
        assert long < 24 * short


@pytest.mark.slow
def test_an_overlong_line_is_discarded_and_the_server_continues(page_name: str):
    with raw(f"memory://{page_name}", "--agent", "analyst") as client:
        client.initialize()
        client.send(b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": "' + b"x" * 100 * 2**20 + b'"}')
        refused = client.receive()
        assert refused["id"] == 7
        assert "the limit is 20,971,520" in refused["error"]["message"]
        assert not client.call(8, "add_observation", type="observation", content="ok").get("isError")


def test_only_the_beginning_of_an_overlong_line_is_kept():
    line = _Partial()
    for _ in range(100 * 16):
        line.add(b"x" * 65_536)
    assert line.size == 100 * 2**20
    assert sum(map(len, line.chunks)) == 65_536


@pytest.mark.alone
def test_the_server_ends_with_its_input_after_all_answers(embedded_url: str, page_name: str):
    with raw(embedded_url, "--agent", "analyst", "--page", page_name) as client:
        client.initialize()
        call = {"name": "add_observation", "arguments": {"type": "observation", "content": "the last words"}}
        client.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode())
        client.process.stdin.close()
        answer = client.receive()
        assert answer["result"]["structuredContent"]["content"] == "the last words"
        assert seconds_until_end(client.process) < SOON
        assert client.process.stdout.read() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.alone
def test_a_signal_ends_the_server_at_once(embedded_url: str, page_name: str, number: signal.Signals):
    with raw(embedded_url, "--agent", "analyst", "--page", page_name) as client:
        client.initialize()
        client.process.send_signal(number)
        assert seconds_until_end(client.process) < SOON
        assert client.process.stdout.read() == b""
        assert b"Traceback" not in client.process.stderr.read()


@pytest.mark.alone
def test_a_signal_ends_a_server_whose_client_does_not_read(embedded_url: str, page_name: str):
    with raw(embedded_url, "--agent", "analyst", "--page", page_name) as client:
        client.initialize()
        pipe = client.process.stdout
        assert pipe is not None
        size = fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(20):
            client.send(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}')
        eventually(lambda: unread(pipe) == size, "the pipe is full, in the middle of an answer")
        client.process.send_signal(signal.SIGTERM)
        assert seconds_until_end(client.process) < 2 * SOON


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "--agent"),
        (("--agent", "no spaces"), 5, "agent"),
        (("--agent", "a", "--tools", "everything"), 5, "observations, history, notes"),
        (("--agent", "a", "--kind", "robot"), 5, "subagent, person"),
        (("--agent", "a", "--url", "redis://127.0.0.1:1"), 6, "127.0.0.1:1"),
    ],
)
def test_a_server_that_cannot_start_gives_a_one_line_error(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int, message: str
):
    assert main(["mcp", *options]) == code
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert message in line


def test_a_missing_mcp_extra_gets_the_install_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "scratchbus.mcp.main", None)
    monkeypatch.delitem(vars(scratchbus), "serve_mcp_stdio", raising=False)  # it may be imported already
    assert main(["mcp", "--agent", "a"]) == 5
    assert "pip install 'scratchbus[mcp]'" in capsys.readouterr().err


async def test_two_servers_of_one_agent_do_not_share_claims(embedded_url: str, page_name: str):
    same = ("--agent", "analyst", "--page", page_name, "--tools", "observations")
    async with in_server_process(embedded_url, *same) as one, in_server_process(embedded_url, *same) as two:
        id = (await one.do("add_observation", type="observation", content="x"))["id"]
        fence = (await one.do("claim_observation", id=id))["fence"]
        for given in ({"fence": fence}, {}):
            assert "is claimed by analyst until" in await two.fail("resolve_observation", id=id, **given)
        assert (await one.do("resolve_observation", id=id, fence=fence))["status"] == "resolved"


async def test_a_restarted_server_keeps_the_claims_of_its_instance(embedded_url: str, page_name: str):
    same = ("--agent", "analyst", "--page", page_name, "--tools", "observations", "--instance", "workspace-7")
    async with in_server_process(embedded_url, *same) as before:
        id = (await before.do("add_observation", type="observation", content="x"))["id"]
        await before.do("claim_observation", id=id)
    async with in_server_process(embedded_url, *same) as after:
        fence = (await after.do("get_observation", id=id))["observation"]["your_fence"]
        assert (await after.do("claim_observation", id=id, fence=fence))["fence"] == fence
        assert (await after.do("resolve_observation", id=id, fence=fence))["status"] == "resolved"
