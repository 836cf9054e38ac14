"""MCP mounted in an application of another framework, with tokens."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import scratchbus
from scratchbus.errors import InvalidField
from scratchbus.mcp.app import _Reception
from scratchbus.mcp.identity import GROUPS, groups_of
from scratchbus.mcp.workspace import Workspace
from tests.edges.mcp.conftest import Agent
from tests.waiting import PATIENCE

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPTED = {"Accept": "application/json, text/event-stream"}

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def in_starlette(lifespan: Lifespan) -> Any:
    return Starlette(lifespan=lifespan, routes=[Route("/", lambda _: PlainTextResponse("its own"))])


def in_fastapi(lifespan: Lifespan) -> Any:
    app = pytest.importorskip("fastapi").FastAPI(lifespan=lifespan)
    app.get("/", response_class=PlainTextResponse)(lambda: "its own")
    return app


class Served(uvicorn.Server):
    @contextmanager
    def capture_signals(self):
        yield


@asynccontextmanager
async def running(app: Any) -> AsyncIterator[str]:
    """Serve an application in this process; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Served(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            server.should_exit = True


def mounted(
    make: Callable[[Lifespan], Any], route: type[Mount | Route], tokens: scratchbus.McpTokens, url: str, *groups: str
) -> Any:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with scratchbus.mcp_app(tokens, groups or None, {"url": url}, is_local=True) as served:
            app.router.routes.append(route("/mcp", served))
            yield

    return make(lifespan)


@pytest.mark.slow
@pytest.mark.parametrize("make", [in_starlette, in_fastapi])
@pytest.mark.parametrize(("route", "path"), [(Route, "/mcp"), (Mount, "/mcp/"), (Mount, "/mcp")])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_mounted_server_serves_mcp_beside_the_hosts_routes(
    make: Callable[[Lifespan], Any],
    route: type[Mount | Route],
    path: str,
    mode: str,
    tmp_path: Path,
    memory_url: str,
    page_name: str,
):
    tokens = scratchbus.McpTokens(tmp_path / "tokens.yaml")
    token = tokens.add("laptop", scratchbus.McpIdentity.of("analyst", page=page_name))
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        running(mounted(make, route, tokens, memory_url)) as url,
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE, follow_redirects=True, verify=False) as http,
    ):
        async with Client(streamable_http_client(url + path, http_client=http), mode=mode) as client:
            added = await Agent(client).do("add_observation", type="observation", content="x")
        assert added["source"] == "analyst"
        assert (await http.get(url)).text == "its own"
        for status, sent in ((401, {"Authorization": "Bearer sbmcp_wrong"}), (403, {"Origin": "https://evil.example"})):
            assert (await http.post(url + path, json=LIST, headers=ACCEPTED | sent)).status_code == status


async def test_a_mounted_server_offers_only_its_groups(tmp_path: Path, memory_url: str, page_name: str):
    tokens = scratchbus.McpTokens(tmp_path / "tokens.yaml")
    token = tokens.add("laptop", scratchbus.McpIdentity.of("analyst", page=page_name, tools=["scratchpad"]))
    async with (
        running(mounted(in_starlette, Route, tokens, memory_url, "observations")) as url,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE, verify=False) as http,
    ):
        assert (await http.post(f"{url}/mcp")).status_code == 403
    with pytest.raises(InvalidField, match="everything"):
        async with scratchbus.mcp_app(tokens, ["everything"], is_local=True):
            pass


async def test_a_token_has_one_server_and_no_lock_is_kept_once_it_is_open(tmp_path: Path, memory_url: str):
    tokens = scratchbus.McpTokens(tmp_path / "tokens.yaml")
    tokens.add("laptop", scratchbus.McpIdentity.of("analyst"))
    (token,) = tokens.all()
    opened = list[object]()
    async with anyio.create_task_group() as tasks:
        reception = _Reception(tokens, groups_of(GROUPS), {"url": memory_url}, None, tasks)

        async def open_one() -> None:
            opened.append(await reception._manager(reception._grant(token)))

        async with anyio.create_task_group() as requests:
            for _ in range(3):
                requests.start_soon(open_one)
        assert (len(opened), len(set(opened)), len(reception._opening)) == (3, 1, 0)
        tasks.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_token_whose_workspace_opens_slowly_delays_no_other(
    tmp_path: Path, memory_url: str, page_name: str, monkeypatch: pytest.MonkeyPatch
):
    tokens = scratchbus.McpTokens(tmp_path / "tokens.yaml")
    headers = {
        agent: ACCEPTED
        | {"Authorization": f"Bearer {tokens.add(agent, scratchbus.McpIdentity.of(agent, page=page_name))}"}
        for agent in ("slow", "fast")
    }
    begun, open_it = anyio.Event(), Workspace.opened

    @asynccontextmanager
    async def opened(identity: scratchbus.McpIdentity, **settings: Any) -> AsyncIterator[Workspace]:
        if identity.agent == "slow":
            begun.set()
            await anyio.sleep_forever()
        async with open_it(identity, **settings) as workspace:
            yield workspace

    monkeypatch.setattr(Workspace, "opened", opened)
    async with (
        running(mounted(in_starlette, Route, tokens, memory_url)) as url,
        httpx2.AsyncClient(timeout=PATIENCE, verify=False) as http,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(partial(http.post, f"{url}/mcp", json=LIST, headers=headers["slow"]))
        with anyio.fail_after(PATIENCE / 2):
            await begun.wait()
            assert (await http.post(f"{url}/mcp", json=LIST, headers=headers["fast"])).status_code < 500
        tasks.cancel_scope.cancel()
