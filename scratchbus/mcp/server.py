"""The server of one identity: its tools, resources and instructions, independent of the transport.

It is built on the SDK's low-level `Server`, since `MCPServer` cannot serve `resources/subscribe`, through which clients
of protocol versions before 2026-07-28 learn of changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from scratchbus import guidance
from scratchbus.mcp.groups import toolbox_of
from scratchbus.mcp.notifications import ResourceSubscriptions
from scratchbus.mcp.resources import Resources
from scratchbus.mcp.toolbox import Toolbox
from scratchbus.mcp.workspace import Workspace

Request = ServerRequestContext[Any, Any]


def server_of(workspace: Workspace) -> Server[None]:
    """Return the server of an identity."""
    toolbox, notices = toolbox_of(workspace), ResourceSubscriptions(workspace)
    sees_the_page = "observations" in workspace.identity.tools

    async def list_tools(_: Request, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=toolbox.listed)

    async def call_tool(_: Request, params: CallToolRequestParams) -> CallToolResult:
        return await toolbox.call(params.name, params.arguments or {})

    @asynccontextmanager
    async def lifespan(_: Server[None]) -> AsyncIterator[None]:
        async with notices.serving():
            yield

    return Server(
        "scratchbus",
        version=version("scratchbus"),
        title="scratchbus",
        description="The shared working memory of daemons and agents.",
        instructions=_instructions(workspace, toolbox),
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        **(_shown(Resources(workspace), notices) if sees_the_page else {}),
    )


def _shown(resources: Resources, notices: ResourceSubscriptions) -> dict[str, Any]:
    """Return the handlers of the resources, which exist only for identities that have the observation tools."""
    return {
        "on_list_resources": resources.list,
        "on_list_resource_templates": resources.list_templates,
        "on_read_resource": resources.read,
        "on_subscribe_resource": notices.subscribe,
        "on_unsubscribe_resource": notices.unsubscribe,
        "on_subscriptions_listen": notices.listen,
    }


def _instructions(workspace: Workspace, toolbox: Toolbox) -> str:
    """Return the instructions for the client's model: its identity here, and when to use its tools."""
    who = workspace.identity
    where = f"page {who.page}" + (f", session {who.session}" if who.session else "")
    you = f"You are {who.agent} on scratchbus, {where}. What you write is recorded as yours."
    return "\n\n".join(filter(None, (you, guidance([tool.name for tool in toolbox.listed], workspace.bus.settings))))
