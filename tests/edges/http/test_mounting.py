"""MCP on the port of the HTTP server, for the same callers."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx2
import pytest

pytest.importorskip("mcp")

from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import scratchbus
from tests.edges.http.conftest import Tokens, serving, serving_here
from tests.edges.http.test_attacks import problem
from tests.edges.mcp.conftest import Agent
from tests.waiting import PATIENCE

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPTED = {"Accept": "application/json, text/event-stream"}


async def test_a_local_process_uses_mcp_as_the_user(served, bus):
    async with (
        httpx2.AsyncClient(timeout=PATIENCE, verify=False) as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http)) as client,
    ):
        added = await Agent(client).do("add_observation", type="observation", content="from MCP")
        me = (await http.get(f"{served.api}/me")).json()
    assert added["source"] == me["source"]
    assert bus.page("main").get(added["id"]).content == "from MCP"


async def test_an_added_event_has_the_traceparent_of_its_call(served, bus):
    of_request, of_call = (f"00-{number:032x}-{9:016x}-01" for number in (7, 8))
    async with (
        httpx2.AsyncClient(timeout=PATIENCE, headers={"traceparent": of_request}, verify=False) as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http)) as client,
    ):
        for meta, expected in ((None, of_request), ({"traceparent": of_call}, of_call)):
            called = await client.call_tool("add_observation", {"type": "observation", "content": "x"}, meta=meta)  # type: ignore[arg-type]
            (event,) = bus.page("main").history(called.structured_content["id"])
            assert event.traceparent == expected


async def test_a_token_determines_the_identity(embedded_url, tmp_path: Path, page):
    tokens = Tokens(tmp_path / "tokens.yaml")
    token = tokens.add("agent", agent="analyst")  # no scopes: MCP uses the tools of the token
    with serving(embedded_url, "--tokens", str(tokens.path)) as running:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE, verify=False) as http,
            Client(streamable_http_client(f"{running.url}/mcp", http_client=http)) as client,
        ):
            added = await Agent(client).do("add_observation", type="observation", content="x")
            assert added["source"] == "analyst"
            assert (await http.get(f"{running.api}/pages/main/active")).status_code == 403


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Origin": "https://evil.example"}, (403, "foreign-origin")),
        ({"Sec-Fetch-Site": "cross-site"}, (403, "foreign-origin")),
        ({"Host": "evil.example"}, (421, "unknown-host")),
        ({"User-Agent": "Mozilla/5.0"}, (401, "no-token")),
        ({"Authorization": "Bearer wrong"}, (401, "wrong-token")),
    ],
)
def test_web_pages_and_wrong_tokens_are_refused(served, headers, expected):
    with served.client() as http:
        assert problem(http.post(f"{served.url}/mcp", json=LIST, headers=ACCEPTED | headers)) == expected


def test_without_the_mcp_extra_the_rest_is_served(embedded_url, monkeypatch: pytest.MonkeyPatch):
    vars(scratchbus).pop("mcp_app", None)  # imported on first use
    monkeypatch.setitem(sys.modules, "scratchbus.mcp.app", None)
    with serving_here(embedded_url) as running, running.client() as http:
        answer = http.post(f"{running.url}/mcp", json=LIST, headers=ACCEPTED)
        assert problem(answer) == (501, "not-installed")
        assert "pip install 'scratchbus[mcp]'" in answer.json()["detail"]
        assert http.get("/me").status_code == 200
