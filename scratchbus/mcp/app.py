"""The MCP application: answer each request over streamable HTTP as the identity of its token.

Every token has its own server, opened on first use, so that one token does not hold the claims of another. The SDK
authenticates requests (`SlowingBackend`, which calls our `verify_token`) and refuses those without a token. Its session
manager binds a session to the token that started it, and keeps web pages from reaching a server on a loopback address.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple, cast
from weakref import WeakValueDictionary

import anyio
import h11
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationError, BaseUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from scratchbus.daemon import LimitedLogger, LingeringTransport, TokenChecks, TooManyWrong, exit_within, stderr_logger
from scratchbus.errors import ScratchbusError, SettingsError, for_clients
from scratchbus.mcp.access_tokens import Token, Tokens
from scratchbus.mcp.identity import GROUPS, Identity, groups_of
from scratchbus.mcp.sdk_server import server_of
from scratchbus.mcp.workspace import Workspace

PATH: Final = "/mcp"
"""Where `scratchbus mcp --http` serves."""

GRACE: Final = 0.8
"""Seconds after a signal until the process exits, even if clients are still reading."""

RECHECKED: Final = 2.0
"""Seconds between checks of a token in use; its open streams end once it is no longer valid."""

HEAD_SECONDS: Final = 10.0
"""Seconds in which a connection must send a request's head; twice as many at the most."""

_LOOKS: Final = 3
"""How many times as long it may take to send the body; it may then take one more."""

LOCAL: Final = TransportSecuritySettings(
    allowed_hosts=["127.0.0.1:*", "localhost:*", "[::1]:*"],
    allowed_origins=["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"],
)
"""The hosts and origins of requests to a server that only this machine can reach."""

logger = stderr_logger()
limited_logger = LimitedLogger(logger)


@asynccontextmanager
async def mcp_app(
    tokens: Tokens, groups: Collection[str] | None = None, settings: Mapping[str, Any] | None = None, *, is_local: bool
) -> AsyncIterator[ASGIApp]:
    """Open an ASGI application that serves MCP to clients with a token, at every path; close it on exit.

    It offers these groups of tools, all by default; `settings` are arguments of `Bus.connect`. With `is_local` it
    refuses requests whose Host or Origin is not this machine, such as those of web pages. To mount it in your own
    application, open it in the lifespan and use `Route("/mcp", app)`: `Mount` redirects `/mcp` to `/mcp/`. Raises
    InvalidField for unknown groups.
    """
    offered = groups_of(GROUPS if groups is None else groups)
    async with anyio.create_task_group() as tasks:
        reception = _Reception(tokens, offered, dict(settings or {}), LOCAL if is_local else None, tasks)
        admission = Middleware(AuthenticationMiddleware, backend=SlowingBackend(reception), on_error=refused_unchecked)
        routes = [Route("/{path:path}", endpoint=RequireAuthMiddleware(reception, []))]
        yield Starlette(routes=routes, middleware=[admission, Middleware(AuthContextMiddleware)])
        tasks.cancel_scope.cancel()


class Admission(NamedTuple):
    """The access a token gives; a token that replaces another of the same name is a new grant."""

    name: str
    digest: str
    identity: Identity


class Admitted(AccessToken):
    """A valid token with its grant."""

    grant: Admission


class _Reception:
    """Routes each request to the server of its token."""

    def __init__(
        self,
        tokens: Tokens,
        groups: Collection[str],
        settings: dict[str, Any],
        security: TransportSecuritySettings | None,
        tasks: TaskGroup,
    ) -> None:
        self._tokens = tokens
        self._groups = groups
        self._settings = settings
        self._security = security
        self._tasks = tasks
        self._managers: dict[Admission, StreamableHTTPSessionManager] = {}
        self._opening: WeakValueDictionary[Admission, anyio.Lock] = WeakValueDictionary()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the access a token gives; None if it is unknown."""
        try:
            found = self._tokens.find(token)
        except SettingsError as problem:
            logger.error("cannot read the tokens file", reason=str(problem))
            return None
        if found is None:
            return None
        grant = self._grant(found)
        return Admitted(token=token, client_id=found.name, scopes=list(grant.identity.tools), grant=grant)

    def _grant(self, token: Token) -> Admission:
        return Admission(token.name, token.digest, token.identity.narrowed(self._groups))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an authenticated request."""
        admitted = scope["user"].access_token
        try:
            answer = self._refusal(admitted.grant.identity) or (await self._manager(admitted.grant)).handle_request
        except ScratchbusError as problem:
            limited_logger.warning("cannot open the bus for a client", client=admitted.client_id, problem=str(problem))
            answer = _error(503, "temporarily_unavailable", for_clients(problem))
        await answer(scope, receive, send)

    def _refusal(self, identity: Identity) -> JSONResponse | None:
        if identity.tools:
            return None
        text = f"this token grants none of the tools here: {', '.join(self._groups)}"
        return _error(403, "insufficient_scope", text, {"WWW-Authenticate": 'Bearer error="insufficient_scope"'})

    async def _manager(self, grant: Admission) -> StreamableHTTPSessionManager:
        lock = self._opening.setdefault(grant, anyio.Lock())  # it goes with the last request that waits for it
        async with lock:  # one of many: others must not wait for a workspace that opens slowly
            if grant not in self._managers:
                self._managers[grant] = await self._tasks.start(self._host, grant)
            return self._managers[grant]

    async def _host(self, grant: Admission, *, task_status: TaskStatus[StreamableHTTPSessionManager]) -> None:
        instance = self._settings.get("instance")
        settings = self._settings | {"instance": instance and f"{instance} token {grant.name}"}
        async with Workspace.opened(grant.identity, is_shared=True, **settings) as workspace:
            manager = StreamableHTTPSessionManager(server_of(workspace), security_settings=self._security)
            async with manager.run():
                task_status.started(manager)
                while self._is_valid(grant):  # noqa: ASYNC110 - a file can only be polled
                    await anyio.sleep(RECHECKED)
                self._managers.pop(grant, None)
        logger.info("token no longer valid; its streams have ended", token=grant.name)

    def _is_valid(self, grant: Admission) -> bool:
        try:
            tokens = self._tokens.last_good()
        except SettingsError:
            return True  # an unreadable file revokes nothing
        return any(token.is_valid and self._grant(token) == grant for token in tokens)


def _error(status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": code, "error_description": text}, status, headers)


class Unchecked(AuthenticationError):
    """A token was not checked, because too many wrong ones are waiting for their answer."""


def refused_unchecked(_request: HTTPConnection, problem: Exception) -> JSONResponse:
    """Return the answer to a request whose token was not checked."""
    return _error(429, "too_many_requests", str(problem), {"Retry-After": TooManyWrong.retry_after})


class SlowingBackend(BearerAuthBackend):
    """Authenticates requests by token."""

    def __init__(self, verifier: TokenVerifier) -> None:
        super().__init__(verifier)
        self._checks = TokenChecks()

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        """Return the user of a request's token; None without a token, or if it is unknown. Raises Unchecked."""
        header = conn.headers.get("authorization", "")
        if not header.lower().startswith("bearer "):
            return None

        async def find(_header: str) -> tuple[AuthCredentials, BaseUser] | None:
            found: tuple[AuthCredentials, BaseUser] | None = await super(SlowingBackend, self).authenticate(conn)
            return found

        try:
            return await self._checks.check(header, conn.client.host if conn.client else "unknown", find)
        except TooManyWrong as problem:
            raise Unchecked(str(problem)) from None


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are handled below


class _Protocol(H11Protocol):
    """HTTP as uvicorn speaks it with h11, which limits heads to 64 KiB. It closes connections without a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        self._lingering = LingeringTransport(transport)
        super().connection_made(cast(asyncio.Transport, self._lingering))
        self._seen: tuple[object, bool] = (None, True)  # the request at the last look, and whether it was answered
        self._looks = 0  # how often this was seen again
        self._look = self.loop.call_later(HEAD_SECONDS, self._end_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self._lingering.discard(data)
        else:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._lingering.in_body = self.conn.their_state is h11.SEND_BODY

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request, unless it or one before it has an answer or a part of one."""
        request: RequestResponseCycle | None = self.cycle
        self._lingering.in_body = True  # a client whose head is refused may still be sending too
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        if request is not None and not request.response_complete:
            request.disconnected = True
            request.message_event.set()
        self.transport.close()

    def shutdown(self) -> None:
        self._lingering.stop_lingering()
        super().shutdown()

    def _end_idle(self) -> None:
        """Close the connection if it has sent no request since the last look, or not the whole body of one."""
        request: RequestResponseCycle | None = self.cycle  # None at first, whatever uvicorn declares
        is_idle = request is None or request.response_complete
        seen, self._seen = self._seen, (request, is_idle)
        self._looks = 0 if seen != self._seen or self.flow.read_paused else self._looks + 1
        is_late = is_idle or (request is not None and request.more_body and self._looks >= _LOOKS)
        if self._looks and is_late:
            if not is_idle:
                self._lingering.stop_lingering()  # there is no answer to be read
            self.transport.close()
            return
        self._look = self.loop.call_later(HEAD_SECONDS, self._end_idle)


async def serve_http(
    app: AbstractAsyncContextManager[ASGIApp], listener: socket.socket, when_ready: Callable[[], None]
) -> None:
    """Serve an application at `PATH` until SIGTERM or SIGINT, also if one comes while the application starts."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks, app as endpoint:
            routed = Starlette(routes=[Route(PATH, endpoint)])
            config = uvicorn.Config(
                routed, http=_Protocol, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
            )
            server = _Uvicorn(config)
            tasks.start_soon(server.serve, [listener])
            when_ready()
            await anext(aiter(signals))
            exit_within(GRACE)
            server.should_exit = True
