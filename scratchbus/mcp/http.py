"""Serve any number of clients over streamable HTTP, each identified by its token.

Every token has its own server, opened on first use, so that one token does not hold the claims of another. The SDK
authenticates requests (`SlowingBackend`, which calls our `verify_token`) and refuses those without a token. Its session
manager binds a session to the token that started it, and keeps web pages from reaching a server on a loopback address.
"""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from os import _exit
from typing import Any, Final

import anyio
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from scratchbus.daemon import stderr_logger
from scratchbus.errors import ScratchbusError, SettingsError, shown
from scratchbus.mcp.failures import SlowingBackend
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.server import server_of
from scratchbus.mcp.tokens import Tokens
from scratchbus.mcp.workspace import Workspace

PATH: Final = "/mcp"
HOST: Final = "127.0.0.1"

GRACE: Final = 0.8
"""Seconds after a signal until the process exits, even if clients are still reading."""

_LOCAL: Final = TransportSecuritySettings(
    allowed_hosts=["127.0.0.1:*", "localhost:*", "[::1]:*"],
    allowed_origins=["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"],
)

logger = stderr_logger()


class Admitted(AccessToken):
    """A valid token with its identity."""

    identity: Identity


class Reception:
    """Routes each request to the server of its token."""

    def __init__(self, tokens: Tokens, groups: Collection[str], settings: dict[str, Any], is_local: bool) -> None:
        self._tokens = tokens
        self._groups = groups
        self._settings = settings
        self._security = _LOCAL if is_local else None
        self._managers: dict[tuple[str, Identity], StreamableHTTPSessionManager] = {}
        self._turn = anyio.Lock()
        self._tasks: TaskGroup

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Starlette]:
        """Return the application; it serves until exit."""
        admission = Middleware(AuthenticationMiddleware, backend=SlowingBackend(self))
        routes = [Route(PATH, endpoint=RequireAuthMiddleware(self, []))]
        async with anyio.create_task_group() as self._tasks:
            yield Starlette(routes=routes, middleware=[admission, Middleware(AuthContextMiddleware)])
            self._tasks.cancel_scope.cancel()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the access a token gives; None if it is unknown."""
        try:
            found = self._tokens.find(token)
        except SettingsError as problem:
            logger.error("cannot read the tokens file", reason=str(problem))
            return None
        if found is None:
            return None
        identity = found.identity.narrowed(self._groups)
        return Admitted(token=token, client_id=found.name, scopes=list(identity.tools), identity=identity)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an authenticated request."""
        admitted = scope["user"].access_token
        try:
            answer = self._refusal(admitted.identity) or (await self._manager(admitted)).handle_request
        except ScratchbusError as problem:
            answer = _error(503, "temporarily_unavailable", str(problem))
        await answer(scope, receive, send)

    def _refusal(self, identity: Identity) -> JSONResponse | None:
        if identity.tools:
            return None
        return _error(403, "insufficient_scope", f"this token grants none of the tools here: {', '.join(self._groups)}")

    async def _manager(self, admitted: Admitted) -> StreamableHTTPSessionManager:
        key = admitted.client_id, admitted.identity
        async with self._turn:
            if key not in self._managers:
                self._managers[key] = await self._tasks.start(self._host, *key)
            return self._managers[key]

    async def _host(
        self, name: str, identity: Identity, *, task_status: TaskStatus[StreamableHTTPSessionManager]
    ) -> None:
        instance = self._settings.get("instance")
        settings = self._settings | {"instance": instance and f"{instance} token {name}"}
        async with Workspace.opened(identity, **settings) as workspace:
            manager = StreamableHTTPSessionManager(server_of(workspace), security_settings=self._security)
            async with manager.run():
                task_status.started(manager)
                await anyio.sleep_forever()


def _error(status: int, code: str, text: str) -> JSONResponse:
    headers = {"WWW-Authenticate": f'Bearer error="{code}"'} if status == 403 else None
    return JSONResponse({"error": code, "error_description": text}, status, headers)


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # we handle them


async def serve_http(reception: Reception, listener: socket.socket, when_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT."""
    async with anyio.create_task_group() as tasks, reception.open() as app:
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1)
        server = _Uvicorn(config)
        tasks.start_soon(server.serve, [listener])
        when_ready()
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            await anext(aiter(signals))
        end = threading.Timer(GRACE, _exit, (0,))  # acknowledged writes are in the log, so nothing is lost
        end.daemon = True
        end.start()
        server.should_exit = True


def listen(where: str) -> tuple[socket.socket, str]:
    """Return a socket listening on PORT or HOST:PORT, and its URL. Raises SettingsError."""
    host, _, port = where.rpartition(":")
    host = host.strip("[]") or HOST
    if not port.isdecimal() or int(port) > 65535:
        raise SettingsError(
            f"http: {shown(where)} is not an address to listen on; write PORT or HOST:PORT (port 0 picks a free one)"
        )
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, int(port)), family=family)
    except OSError as problem:
        raise SettingsError(f"http: {where}: {problem.strerror or problem}; choose another host or port") from None
    shown_host = f"[{host}]" if ":" in host else host
    return listener, f"http://{shown_host}:{listener.getsockname()[1]}{PATH}"


def is_local(listener: socket.socket) -> bool:
    """Return whether only this machine can reach it."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback
