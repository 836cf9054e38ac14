"""The checks that every request passes first: its host, its origin, its caller, and its size.

A web page elsewhere must not use a server on this machine through its user's browser: unknown values of `Host` (DNS
rebinding) and requests from other origins are refused. Bodies have a limit, and time to arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette_compress import CompressMiddleware, remove_compress_type

from scratchbus import within_trace
from scratchbus.http.callers import is_cookie_alone
from scratchbus.http.problems import Refusal, refusal
from scratchbus.http.server import Server

MAX_BODY: Final = 16 * 2**20
"""The most bytes of a body; the largest atomic batch has 8 MiB of events."""

MAX_PUBLIC_BODY: Final = 16 * 2**10
"""The most bytes of a body from an unknown caller, who logs in."""

BODY_SECONDS: Final = 30.0
"""The seconds in which a body has to arrive."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the console's pages may do: nothing but use this server."""

_ALL: Final = (
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
_PAGES: Final = ((b"content-security-policy", POLICY.encode()), *_ALL)
_ANSWERS: Final = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
    *_ALL,
)

_PUBLIC: Final = frozenset({"/", "/healthz", "/readyz", "/api/v1/openapi.json", "/api/v1/login", "/api/v1/logout"})
_PUBLIC_FILES: Final = "/console/"
_SAFE: Final = ("GET", "HEAD", "OPTIONS")

remove_compress_type("text/event-stream")  # each of a thousand streams would keep what compresses it


class Guard:
    """Checks each request before the application sees it, and adds the headers that protect browsers."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self._app = app
        self._compressing = CompressMiddleware(app, minimum_size=4_000, zstd_level=1, brotli_quality=3, gzip_level=3)
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        answer = _GuardedResponse(scope, receive, send)
        try:
            scope = await self._checked(scope)
            body = _limited(scope, receive, answer)
        except Refusal as problem:
            await answer.refuse(problem)
            return
        app = self._compressing if b"accept-encoding" in dict(scope["headers"]) else self._app
        try:
            with within_trace(scope["state"].get("traceparent")):
                await self._serve(app, scope, body, answer)
        except Refusal as problem:
            await answer.refuse(problem)
        except Exception:  # noqa: S110 - it is logged and answered (see `problems`); uvicorn would log it again
            pass

    async def _serve(self, app: ASGIApp, scope: Scope, body: Receive, answer: _GuardedResponse) -> None:
        if scope["method"] == "HEAD":
            scope["method"] = "GET"
            with anyio.CancelScope() as answer.only_head:
                await app(scope, body, answer.send)
        else:
            await app(scope, body, answer.send)

    async def _checked(self, scope: Scope) -> Scope:
        """Return a request as the application sees it. Raises Refusal."""
        headers = _headers_of(scope)
        self._check_host(headers.get("host", ""))
        path = _path_of(scope)
        is_private = needs_caller(path)
        _check_origin(scope, headers, is_private)
        if headers.get("content-encoding", "identity") != "identity":
            raise Refusal(415, "unsupported-media-type", "the body is compressed; send it uncompressed")
        scope = {**scope, "path": path, "state": dict(scope.get("state", {}))}
        scope["state"]["traceparent"] = headers.get("traceparent")
        if is_private:
            scope["state"]["caller"] = await self._server.callers.identify(scope, headers)
        return scope

    def _check_host(self, host: str) -> None:
        hosts = self._server.hosts
        if hosts is not None and host.lower() not in hosts:
            raise Refusal(
                421, "unknown-host", f"Host is {host[:100]!r}; this server answers to {', '.join(sorted(hosts))}"
            )


def needs_caller(path: str) -> bool:
    """Return whether a path is only for known callers: all but the console's files, and what load balancers ask."""
    return path not in _PUBLIC and not path.startswith(_PUBLIC_FILES)


def _headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers of a request; a repeated header has all its values."""
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        found[name] = f"{found[name]}{'; ' if name == 'cookie' else ', '}{text}" if name in found else text
    return found


def _check_origin(scope: Scope, headers: dict[str, str], is_private: bool) -> None:
    """Refuse what pages of other origins send. Raises Refusal."""
    own_origin = f"{scope['scheme']}://{headers.get('host', '')}".lower()
    origin = headers.get("origin")
    if origin is not None and origin.lower() != own_origin:
        raise Refusal(403, "foreign-origin", f"a page of {origin[:100]} sent this; only pages of {own_origin} may")
    site, method = headers.get("sec-fetch-site"), scope["method"]
    is_link = headers.get("sec-fetch-mode") == "navigate" and method == "GET"
    if site not in (None, "none", "same-origin") and (is_private or not is_link):
        raise Refusal(403, "foreign-origin", f"a page of another site sent this; only pages of {own_origin} may")
    if origin is None and site is None and method not in _SAFE and is_cookie_alone(headers):
        detail = "a write with a cookie needs an Origin header; send one, or the token in Authorization"
        raise Refusal(403, "foreign-origin", detail)


def _path_of(scope: Scope) -> str:
    """Return the path with %2F and %25 still encoded: a name with a slash is one segment. Raises Refusal."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    raw = raw.partition(b"?")[0]
    if b"%" in raw:
        raw = unquote_to_bytes(raw.replace(b"%25", b"%2525").replace(b"%2F", b"%252F").replace(b"%2f", b"%252F"))
    try:
        path = raw.decode()
    except UnicodeDecodeError:
        raise Refusal(400, "bad-request", "the path is not UTF-8") from None
    if not path.isprintable() or "\\" in path:
        raise Refusal(400, "bad-request", "the path has a control character or a backslash; no name has one")
    return path


class _GuardedResponse:
    """The answer to a request: with the headers that protect browsers, or a problem found while its body was read."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._request = scope, receive
        self._send = send
        self._has_begun = False
        self._is_over = False
        self._headers = _PAGES if scope["path"] == "/" or scope["path"].startswith(_PUBLIC_FILES) else _ANSWERS
        self.problem: Refusal | None = None
        self.only_head: anyio.CancelScope | None = None

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if self._is_over:
            return
        if message["type"] == "http.response.start":
            if self.problem is not None:
                await self.refuse(self.problem)
                return
            self._has_begun = True
            await self._send(self._protected(message))
            if self.only_head is not None:
                self._is_over = True
                await self._send({"type": "http.response.body"})
                self.only_head.cancel()  # a stream would go on
        else:
            await self._send(message)

    async def refuse(self, problem: Refusal) -> None:
        """Answer with a problem, unless another answer has begun."""
        if self._has_begun or self._is_over:
            return
        self._is_over = True

        async def send(message: Message) -> None:
            await self._send(self._protected(message))

        await refusal(problem)(*self._request, send)

    def _protected(self, message: Message) -> Message:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            names = {name for name, _ in headers}
            headers += [header for header in self._headers if header[0] not in names]
            message["headers"] = headers
        return message


def _limited(scope: Scope, receive: Receive, answer: _GuardedResponse) -> Receive:
    """Return a `receive` that refuses a body that is too long or too slow. Raises Refusal if its headers say so."""
    limit = MAX_BODY if "caller" in scope["state"] else MAX_PUBLIC_BODY
    content_length, is_chunked = b"0", False
    for name, value in scope["headers"]:
        if name == b"content-length":
            content_length = value
        is_chunked = is_chunked or name == b"transfer-encoding"
    if content_length.isdigit() and int(content_length) > limit:
        raise _too_long(limit)
    if content_length == b"0" and not is_chunked:
        return receive
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS
    size = 0
    is_whole = False

    async def limited() -> Message:
        nonlocal size, is_whole
        if is_whole:
            return await receive()  # it waits for the client to leave
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            detail = f"the body did not arrive within {BODY_SECONDS:g} s; send it again"
            answer.problem = Refusal(408, "request-timeout", detail, {"Connection": "close"})
            raise answer.problem from None
        size += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if size > limit:
            answer.problem = _too_long(limit)
            raise answer.problem
        return message

    return limited


def _too_long(limit: int) -> Refusal:
    detail = f"the body is larger than {limit:,} bytes; send several smaller ones"
    return Refusal(413, "body-too-large", detail, {"Connection": "close"})


def hosts_of(host: str, port: int, names: Iterable[str], *, is_local: bool, is_secure: bool) -> frozenset[str] | None:
    """Return the values of `Host` that mean this server; None for any, where tokens protect it.

    A name without a port also matches with the server's port, since a proxy keeps the Host of the browser.
    """
    named_hosts = {name.lower() for name in names}
    if not named_hosts and not is_local:
        return None
    local_hosts = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host} if is_local else set()
    usual = 443 if is_secure else 80
    without_port = {name for name in named_hosts if not name.rpartition(":")[2].isdecimal()}
    with_port = {f"{name}:{port}" for name in local_hosts | without_port}
    return frozenset(with_port | named_hosts | (local_hosts if port == usual else set()))
