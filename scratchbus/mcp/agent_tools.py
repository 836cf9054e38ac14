"""The tools of an agent in this process, its only access to the bus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from scratchbus.mcp.groups import toolbox_of
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.toolbox import Toolbox
from scratchbus.mcp.workspace import Workspace


class ToolAnswer(NamedTuple):
    """A tool's answer as text for the model: JSON, or if `is_error`, one line that says what to do."""

    text: str
    is_error: bool


class AgentTools:
    """The tools of one agent, by name, without other access to the bus. Open them with `open_agent_tools`."""

    __slots__ = ("_call", "definitions")

    def __init__(self, toolbox: Toolbox) -> None:
        self._call = toolbox.call
        self.definitions: list[dict[str, Any]] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
            for tool in toolbox.listed
        ]
        """The name, description and JSON Schema of each tool, as model APIs take them."""

    @property
    def names(self) -> list[str]:
        """The names of the tools; `scratchbus.guidance` returns the text about them for a system prompt."""
        return [definition["name"] for definition in self.definitions]

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolAnswer:
        """Call a tool. Errors are returned as answers, also for a tool that the agent does not have."""
        result = await self._call(name, dict(arguments or {}))
        return ToolAnswer("".join(part["text"] for part in result["content"]), result["isError"])


@asynccontextmanager
async def open_agent_tools(
    agent: str,
    *,
    kind: str = "subagent",
    page: str = "main",
    session: str | None = None,
    tools: Collection[str] | None = None,
    knowledge: Collection[str] = (),
    **settings: Any,
) -> AsyncIterator[AgentTools]:
    """Open the bus for an agent that may use only the tools of `scratchbus mcp`; close it on exit.

    `tools` names groups of tools, like `--tools`; `knowledge` names the scopes whose preferences the agent sees.
    Its writes are recorded under its name. Raises InvalidInput, EngineError.
    """
    identity = Identity.of(agent, kind=kind, page=page, session=session, tools=tools, knowledge=knowledge)
    async with Workspace.opened(identity, **settings) as workspace:
        yield AgentTools(toolbox_of(workspace))
