"""The server of one identity on the SDK, which carries the protocol over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from scratchbus.mcp.methods import INFO, Methods
from scratchbus.mcp.protocol import LATER, Method, ProtocolError, Result, completed
from scratchbus.mcp.workspace import Workspace

Request = ServerRequestContext[Any, Any]

_PARAMS: Final[dict[str, type[types.RequestParams]]] = {
    "tools/call": types.CallToolRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "completion/complete": types.CompleteRequestParams,
    "logging/setLevel": types.SetLevelRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "resources/subscribe": types.SubscribeRequestParams,
    "resources/unsubscribe": types.UnsubscribeRequestParams,
    "subscriptions/listen": types.SubscriptionsListenRequestParams,
    "ping": types.RequestParams,
}
"""The SDK's model for the parameters of a method; all other methods take those of a paged list."""

_NOTIFICATIONS: Final[dict[str, Any]] = {
    "notifications/message": types.LoggingMessageNotification,
    "notifications/resources/updated": types.ResourceUpdatedNotification,
    "notifications/subscriptions/acknowledged": types.SubscriptionsAcknowledgedNotification,
}


def server_of(workspace: Workspace) -> Server[None]:
    """Return the server of an identity."""
    methods = Methods(workspace)

    @asynccontextmanager
    async def lifespan(_: Server[None]) -> AsyncIterator[None]:
        async with methods.serving():
            yield

    description: dict[str, Any] = {**INFO, "instructions": methods.instructions}
    server: Server[None] = Server(**description, lifespan=lifespan)
    for name, method in methods.by_name.items():
        server.add_request_handler(name, _PARAMS.get(name, types.PaginatedRequestParams), _handler(name, method))
    return server


def _handler(name: str, method: Method) -> Any:
    """Return the handler that the SDK calls for a method."""

    async def handle(context: Request, _: Any) -> Result:
        try:
            result = await method(_Client(context), context.params or {})
        except ProtocolError as problem:
            raise MCPError(problem.code, str(problem), problem.data) from None
        return completed(name, result) if context.protocol_version in LATER else result

    return handle


class _Client:
    """The sender of a request to the SDK."""

    def __init__(self, context: Request) -> None:
        self._session = context.session
        self.request_id = context.request_id
        self.traceparent = getattr(context.request, "headers", {}).get("traceparent")

    @property
    def connection(self) -> object:
        return self._session._connection  # private in the SDK, but the only thing that distinguishes clients

    @property
    def ending(self) -> AsyncExitStack:
        return self._session._connection.exit_stack  # see above

    async def notify(self, method: str, params: dict[str, Any], *, is_of_request: bool = False) -> None:
        notification = _NOTIFICATIONS[method].model_validate({"method": method, "params": params})
        await self._session.send_notification(notification, self.request_id if is_of_request else None)
