"""MCP at /mcp: the application of `scratchbus.mcp_app`, opened by the first request that asks for it.

It authenticates by the token or key in `Authorization`. A process of the user who started the server needs none, as for
the API: its requests get the key of this start.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskStatus
from starlette.types import ASGIApp, Receive, Scope, Send

import scratchbus
from scratchbus.http.callers import Caller, LocalUser
from scratchbus.http.problems import Refusal
from scratchbus.http.server import Server

PATH: Final = "/mcp"


class Mcp:
    """The MCP application of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._turn = anyio.Lock()
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. Raises Refusal where MCP is not installed."""
        async with self._turn:
            if self._app is None:
                self._app = await self._server.tasks.start(self._host)
        await self._app(self._authorized(scope), receive, send)

    def _authorized(self, scope: Scope) -> Scope:
        callers = self._server.callers
        if not isinstance(callers, LocalUser):
            return scope
        headers = [header for header in scope["headers"] if header[0] != b"authorization"]
        return {**scope, "headers": [*headers, (b"authorization", b"Bearer " + callers.key.encode())]}

    async def _host(self, *, task_status: TaskStatus[ASGIApp]) -> None:
        try:
            mcp_app = scratchbus.mcp_app(self._tokens(), settings=self._server.settings, is_local=False)
        except ImportError as problem:
            raise Refusal(501, "not-installed", f"MCP needs: pip install 'scratchbus[mcp]' ({problem})") from None
        async with mcp_app as app:  # the guard has checked the host and the origin
            task_status.started(app)
            await anyio.sleep_forever()

    def _tokens(self) -> scratchbus.McpTokens:
        callers = self._server.callers
        return _KeyAsToken(callers.key, callers.user) if isinstance(callers, LocalUser) else callers.tokens


class _KeyAsToken(scratchbus.McpTokens):
    """The key of a start, as the only token: it grants the basic tools, as the user."""

    def __init__(self, key: str, user: Caller) -> None:
        super().__init__(Path())
        identity = scratchbus.McpIdentity.of(user.source, kind=user.kind)
        self._only = [scratchbus.McpToken(user.name, sha256(key.encode()).hexdigest(), identity)]

    def all(self) -> list[scratchbus.McpToken]:
        """Return the only token."""
        return self._only
