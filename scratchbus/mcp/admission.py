"""Authenticate requests by token for the SDK, delaying the answer to wrong tokens."""

from __future__ import annotations

from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import TokenVerifier
from starlette.authentication import AuthCredentials, AuthenticationError, BaseUser
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from scratchbus.daemon import TokenChecks, TooManyWrong


class Unchecked(AuthenticationError):
    """A token was not checked, because too many wrong ones are waiting for their answer."""


def refused_unchecked(_request: HTTPConnection, problem: Exception) -> JSONResponse:
    """Return the answer to a request whose token was not checked."""
    body = {"error": "too_many_requests", "error_description": str(problem)}
    return JSONResponse(body, 429, {"Retry-After": TooManyWrong.retry_after})


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
