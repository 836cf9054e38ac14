"""Slow down wrong tokens: each is logged, and answered later than the previous one from the same client.

A valid token is never delayed, so nobody can lock out others, not even from the same address.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import anyio
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import TokenVerifier
from starlette.authentication import AuthCredentials, BaseUser
from starlette.requests import HTTPConnection

from scratchbus.daemon import stderr_logger

FIRST: Final = 0.05
"""Seconds by which the answer to a client's first wrong token is delayed; each further one doubles the delay."""

LONGEST: Final = 3.0

FORGOTTEN: Final = 300.0
"""Seconds without a wrong token after which a client's count restarts."""

CLIENTS: Final = 1024
"""The most clients to remember; beyond that, the one whose last wrong token is oldest is forgotten."""

WAITING: Final = 256
"""The most answers delayed at once; further ones are not delayed, since delayed answers use memory."""

_LOGGED_EACH: Final = 8  # failures of a client are all logged; later only every power of two

logger = stderr_logger()


class Failures:
    """Counts the wrong tokens of each client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, client: str) -> int:
        """Count a wrong token of a client; return its count."""
        now = self._clock()
        count, last = self._seen.pop(client, (0, now))
        count = 1 if now - last > FORGOTTEN else count + 1
        self._seen[client] = (count, now)
        while len(self._seen) > CLIENTS:
            self._seen.popitem(last=False)
        return count


def delay(count: int) -> float:
    """Return the delay in seconds for the count-th wrong token of a client."""
    return float(min(LONGEST, FIRST * 2 ** min(count - 1, 32)))


def client_of(host: str) -> str:
    """Return the key of a client: its address, or its /64 network with IPv6, since it can choose the rest."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]  # as given by a proxy
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class SlowingBackend(BearerAuthBackend):
    """Authenticates requests by token; logs wrong tokens and delays their answers."""

    def __init__(self, verifier: TokenVerifier) -> None:
        super().__init__(verifier)
        self._failures = Failures()
        self._waiting = 0

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        """Return the user of a request's token; None without a token, or if it is unknown."""
        found: tuple[AuthCredentials, BaseUser] | None = await super().authenticate(conn)
        if found is None and conn.headers.get("authorization", "").lower().startswith("bearer "):
            await self._refuse(client_of(conn.client.host if conn.client else "unknown"))
        return found

    async def _refuse(self, client: str) -> None:
        count = self._failures.add(client)
        if count <= _LOGGED_EACH or count & (count - 1) == 0:
            logger.warning("token refused", client=client, failures=count)
        if self._waiting >= WAITING:
            return
        self._waiting += 1
        try:
            await anyio.sleep(delay(count))
        finally:
            self._waiting -= 1
