"""The methods of the server of one identity, independent of the transport."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any, Final
from weakref import WeakKeyDictionary

from scratchbus import within_trace
from scratchbus.errors import ScratchbusError
from scratchbus.mcp.completion import Completions
from scratchbus.mcp.groups import toolbox_of
from scratchbus.mcp.instructions import instructions
from scratchbus.mcp.notifications import ResourceSubscriptions
from scratchbus.mcp.prompts import Prompts
from scratchbus.mcp.protocol import INTERNAL_ERROR, LEVEL_KEY, Client, Method, Params, ProtocolError, Result
from scratchbus.mcp.resources import Resources
from scratchbus.mcp.workspace import Workspace

INFO: Final = {
    "name": "scratchbus",
    "title": "scratchbus",
    "version": version("scratchbus"),
    "description": "The shared working memory of daemons and agents.",
}
"""What the server tells clients about itself."""

_QUIET: Final = ("error", "critical", "alert", "emergency")
"""The log levels at which a client does not want messages about failed tools."""


class Methods:
    """The methods of one identity, by name, and the description that clients get when they connect."""

    def __init__(self, workspace: Workspace) -> None:
        self._toolbox = toolbox_of(workspace)
        self._levels: WeakKeyDictionary[object, str] = WeakKeyDictionary()
        resources, prompts = Resources(workspace), Prompts(workspace)
        self._subscriptions = ResourceSubscriptions(workspace, resources)
        self.instructions = instructions(workspace.identity, self._toolbox.names)
        self.by_name: dict[str, Method] = {
            "ping": self._ping,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "prompts/list": prompts.list,
            "prompts/get": prompts.get,
            "completion/complete": Completions(workspace).complete,
            "logging/setLevel": self._set_level,
        }
        if resources.kinds:  # resources need the tools for the same data
            self.by_name |= {
                "resources/list": resources.list,
                "resources/templates/list": resources.list_templates,
                "resources/read": resources.read,
                "resources/subscribe": self._subscriptions.subscribe,
                "resources/unsubscribe": self._subscriptions.unsubscribe,
                "subscriptions/listen": self._subscriptions.listen,
            }

        self.by_name = {name: _answering(method) for name, method in self.by_name.items()}

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Serve subscriptions until exit."""
        return self._subscriptions.serving()

    async def _ping(self, _: Client, __: Params) -> Result:
        return {}

    async def _list_tools(self, _: Client, __: Params) -> Result:
        return {"tools": self._toolbox.listed}

    async def _call_tool(self, client: Client, params: Params) -> Result:
        result = await self._toolbox.call(params["name"], params.get("arguments") or {})
        level = (params.get("_meta") or {}).get(LEVEL_KEY) or self._levels.get(client.connection)
        if result["isError"] and level is not None and level not in _QUIET:
            data = {"tool": params["name"], "error": result["content"][0]["text"]}
            message: dict[str, Any] = {"level": "warning", "logger": "scratchbus", "data": data}
            await client.notify("notifications/message", message, is_of_request=True)
        return result

    async def _set_level(self, client: Client, params: Params) -> Result:
        self._levels[client.connection] = params["level"]
        return {}


def _answering(method: Method) -> Method:
    """Record a method's writes under the trace of the request, from `_meta` or else from the HTTP headers.

    Errors of the bus, such as an engine that is away, become errors of the protocol.
    """

    async def answer(client: Client, params: Params) -> Result:
        with within_trace((params.get("_meta") or {}).get("traceparent") or client.traceparent):
            try:
                return await method(client, params)
            except ScratchbusError as problem:
                raise ProtocolError(INTERNAL_ERROR, str(problem)) from None

    return answer
