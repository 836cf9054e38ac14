"""Clients of the SDK for the MCP server, in this process or in a process of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

from scratchbus import AsyncBus
from scratchbus.mcp.groups import GROUPS
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.sdk_server import server_of
from scratchbus.mcp.workspace import Workspace
from tests import launcher

ROOT = Path(__file__).parents[3]


def tool_names(group: str) -> list[str]:
    """Return the names of the tools of a group in their order, without former ones."""
    current_names = [pair for each in GROUPS[group] for pair in each.current_names().items()]
    return [name for name, current_name in current_names if name == current_name]


class Agent:
    """A client that calls tools."""

    def __init__(self, client: Client, bus: AsyncBus | None = None) -> None:
        self.client = client
        self.bus = bus

    async def do(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, which must succeed, and return its answer."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, text_of(result)
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def fail(self, tool: str, **arguments: Any) -> str:
        """Call a tool, which must fail, and return its one-line error."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result
        error = text_of(result)
        assert "\n" not in error
        return error


def text_of(result: CallToolResult) -> str:
    (only,) = result.content
    assert only.type == "text"
    return only.text


Connect = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture
def memory_url() -> str:
    return f"memory://{token_hex(6)}"


@pytest.fixture
def connect(memory_url: str) -> Connect:
    """Connect an agent with all tools to the test's bus, through a server in this process."""

    @asynccontextmanager
    async def enter(agent: str = "analyst", mode: str = "auto", **identity: Any) -> AsyncIterator[Agent]:
        async with (
            Workspace.opened(Identity.of(agent, **{"tools": ["all"], **identity}), url=memory_url) as workspace,
            Client(server_of(workspace), mode=mode) as client,
        ):
            yield Agent(client, workspace.bus)

    return enter


@asynccontextmanager
async def in_server_process(url: str, *options: str, mode: str = "auto", **how: Any) -> AsyncIterator[Agent]:
    """Connect an agent to a server in a process of its own, over standard input and output."""
    command, *arguments = launcher.command("-m", "scratchbus.cli", "mcp", "--tools", "all", "--url", url, *options)
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ), cwd=str(ROOT))
    async with Client(server, mode=mode, **how) as client:
        yield Agent(client)


@pytest.fixture
def page_name() -> str:
    """The name of a page of the test's own."""
    return f"mcp-{token_hex(6)}"
