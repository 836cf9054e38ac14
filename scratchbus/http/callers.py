"""The caller of a request, identified by its connection, never by its body.

Without a tokens file the server listens on a loopback address and serves the user who started it. The kernel tells
which user a program that connects belongs to. Where it does not, the program sends the key of this start, which is in
the URL to open and then in a cookie. A browser always needs the cookie, since any web page can make it connect. Servers
of other users on other ports get the same cookies, but cannot use the key, since the kernel knows their user.

With a tokens file, the same as for MCP, everyone needs a token, in the header `Authorization` or in that cookie. The
`scopes` of the token say what it may do.
"""

from __future__ import annotations

import hmac
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal

from starlette.types import Scope

import scratchbus
from scratchbus.daemon import TokenChecks, TooManyWrong
from scratchbus.http.client_connections import ClientConnection
from scratchbus.http.peer_users import NOBODY
from scratchbus.http.problems import Refusal

Headers = Mapping[str, str]
"""The headers of a request, by their names in lower case."""

SCOPES: Final = scratchbus.TOKEN_SCOPES
"""What a caller may do: read pages; add; change, claim and consume; operate the bus, and speak for others; use the
memories of sessions and agents."""


@dataclass(frozen=True)
class Caller:
    """A caller and its permissions. `key` distinguishes callers with the same source, and proves their claims."""

    name: str
    source: str
    scopes: frozenset[str]
    kind: str = "person"
    key: str = field(default="", repr=False)

    @property
    def may_name_source(self) -> bool:
        """Whether a body may name another source than theirs."""
        return "admin" in self.scopes

    @property
    def held(self) -> list[str]:
        """The caller's scopes, in their fixed order."""
        return [scope for scope in SCOPES if scope in self.scopes]

    def need(self, scope: str) -> None:
        """Raise Refusal unless the caller has a scope."""
        if scope not in self.scopes:
            held = ", ".join(self.held) or "none"
            detail = f"this needs the scope {scope}; {self.name} has: {held}"
            raise Refusal(403, "insufficient-scope", detail, {"WWW-Authenticate": 'Bearer error="insufficient_scope"'})


class Callers(ABC):
    """Everyone who may use a server."""

    advice: str
    """What someone without a valid token or key does."""

    signs_in_with: Literal["key", "token"]
    """What identifies a browser."""

    def __init__(self) -> None:
        self._checks = TokenChecks()

    @abstractmethod
    def find(self, secret: str) -> Caller | None:
        """Return the caller whose token or key this is; None if it is nobody's, or no longer."""

    @abstractmethod
    def is_valid(self, caller: Caller) -> bool:
        """Return whether a caller still has the permissions it was identified with."""

    def check_valid(self, caller: Caller) -> None:
        """Refuse a caller that has lost permissions since it was identified. Raises Refusal."""
        if not self.is_valid(caller):
            raise self._refused("wrong-token", "this token or key is no longer valid", 'Bearer error="invalid_token"')

    def check_connection(self, connection: ClientConnection | None) -> None:  # noqa: B027  # any is as good, by default
        """Refuse a connection that a token or key does not help. Raises Refusal."""

    def connected(self, connection: ClientConnection | None) -> Caller | None:
        """Return the caller known from the connection alone, without a token or key; by default nobody is."""
        return None

    async def identify(self, scope: Scope, headers: Headers) -> Caller:
        """Return the caller of a request. Raises Refusal."""
        connection: ClientConnection | None = scope["state"].get("connection")
        secret = bearer_of(headers)
        if secret is None:
            secret = self._secret_of_cookie(cookie_of(scope["scheme"], headers.get("host", "")), headers)
        if secret is None:
            found = None if is_from_browser(headers) else self.connected(connection)
            if found is None:
                raise self._refused("no-token", "this server needs a token or key", "Bearer")
            return found
        found = await self.check(secret, scope["client"])
        self.check_connection(connection)
        return found

    async def check(self, secret: str, client: tuple[str, int] | None) -> Caller:
        """Return the caller whose token or key this is; a wrong one is answered late. Raises Refusal."""

        async def find(token: str) -> Caller | None:
            return self.find(token)

        try:
            found = await self._checks.check(secret, client[0] if client else "unknown", find)
        except TooManyWrong as problem:
            raise Refusal(429, "too-many-wrong-tokens", str(problem), {"Retry-After": problem.retry_after}) from None
        if found is None:
            raise self._refused("wrong-token", "this token or key is not valid here", 'Bearer error="invalid_token"')
        return found

    def _secret_of_cookie(self, name: str, headers: Headers) -> str | None:
        """Return the first valid token or key of the cookies, else the first: other ports can set some too."""
        secrets = list(_cookies(headers.get("cookie", ""), name))[:4]
        return next((each for each in secrets if self.find(each)), secrets[0] if secrets else None)

    def _refused(self, slug: str, detail: str, scheme: str) -> Refusal:
        return Refusal(
            401, slug, f"{detail}; {self.advice}", {"WWW-Authenticate": scheme}, signs_in_with=self.signs_in_with
        )


class LocalUser(Callers):
    """The user who started the server."""

    advice = "open the URL that `scratchbus serve` printed at its last start, or send its key as Bearer token"
    signs_in_with = "key"

    def __init__(self, source: str, key: str | None = None) -> None:
        super().__init__()
        self.key = key or secrets.token_urlsafe(32)
        self.user = Caller(source, source, frozenset(SCOPES), "person", _secret("user", self.key))

    def find(self, secret: str) -> Caller | None:
        """Return the user if this is the key of this start."""
        return self.user if hmac.compare_digest(secret.encode(errors="replace"), self.key.encode()) else None

    def is_valid(self, caller: Caller) -> bool:
        """Return whether this is the user."""
        return caller == self.user

    def check_connection(self, connection: ClientConnection | None) -> None:
        """Refuse a process of another user, unless root forwards for someone. Raises Refusal."""
        uid = None if connection is None else connection.peer_uid()
        if uid not in (None, 0, os.getuid()):
            whose = "a connection that is closed" if uid == NOBODY else f"a process of user {uid}"
            detail = f"{whose} sent this; the server is for processes of user {os.getuid()}, who started it"
            raise Refusal(403, "other-user", detail)

    def connected(self, connection: ClientConnection | None) -> Caller | None:
        """Return the user if a process of theirs made the connection."""
        return self.user if connection is not None and connection.peer_uid() == os.getuid() else None


class TokenHolders(Callers):
    """The holders of the tokens of a file."""

    advice = "send one as Authorization: Bearer TOKEN, or log in with it"
    signs_in_with = "token"

    def __init__(self, tokens: scratchbus.McpTokens) -> None:
        super().__init__()
        self.tokens = tokens

    def find(self, secret: str) -> Caller | None:
        """Return the holder of a token."""
        token = self.tokens.find(secret)
        return None if token is None else _holder(token)

    def is_valid(self, caller: Caller) -> bool:
        """Return whether the file still has the token, with the same scopes."""
        named = (token for token in self.tokens.last_good() if token.name == caller.name)  # several if edited by hand
        return any(token.is_valid and _holder(token) == caller for token in named)


def cookie_of(scheme: str, host: str) -> str:
    """Return the name of the cookie with the secret of a browser that uses this scheme and host.

    It has the port, since browsers send cookies to all ports of a host. Behind a proxy that is the proxy's, so that all
    processes call it the same. Over TLS no other host or path can set it.
    """
    name, _, port = host.rpartition(":")
    is_secure = scheme == "https"
    if not name or not port.isdecimal():
        port = "443" if is_secure else "80"
    return f"{'__Host-' if is_secure else ''}scratchbus-{port}"


def bearer_of(headers: Headers) -> str | None:
    """Return the token or key in the header Authorization."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


def is_from_browser(headers: Headers) -> bool:
    """Return whether a browser sent a request, by headers that pages of other sites cannot remove."""
    return headers.get("user-agent", "").startswith("Mozilla/") or any(name in headers for name in _OF_BROWSERS)


def is_cookie_alone(headers: Headers) -> bool:
    """Return whether only a cookie can identify the sender of a request."""
    return "cookie" in headers and bearer_of(headers) is None


_OF_BROWSERS: Final = ("origin", "sec-fetch-site", "cookie", "referer")  # `fetch` of Node has sec-fetch-mode too


def _cookies(header: str, name: str) -> Iterator[str]:
    for part in header.split(";"):
        found, _, value = part.strip().partition("=")
        if found == name:
            yield value.strip('"')


def _holder(token: scratchbus.McpToken) -> Caller:
    identity = token.identity
    return Caller(
        token.name, identity.agent, frozenset(token.scopes or ()), identity.kind, _secret("token", token.digest)
    )


def _secret(kind: str, secret: str) -> str:
    """Return what proves a caller's claims, the same in every process that serves the caller."""
    return sha256(f"scratchbus http {kind} {secret}".encode()).hexdigest()
