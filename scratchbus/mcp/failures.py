"""Wrong tokens: each is logged, and answered later than the one before from the same client.

A right token is never delayed, so nobody can lock out others, also not from behind the same address.
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

from scratchbus.telemetry.logs import stderr_logger

FIRST: Final = 0.05
"""For how many seconds the answer to a client's first wrong token waits; each further one doubles that."""

LONGEST: Final = 3.0

FORGOTTEN: Final = 300.0
"""After how many seconds without a wrong token a client begins anew."""

CLIENTS: Final = 1024
"""How many clients are remembered; beyond that, the one whose last wrong token is oldest is forgotten."""

WAITING: Final = 256
"""How many answers wait at once; one more is given without waiting, since waiting answers take memory too."""

_LOGGED_EACH: Final = 8  # failures of a client; beyond that those whose number is a power of two

logger = stderr_logger()


class Failures:
    """Counts the wrong tokens of each client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, client: str) -> int:
        """Count one more of a client; return how many there are."""
        now = self._clock()
        count, last = self._seen.pop(client, (0, now))
        count = 1 if now - last > FORGOTTEN else count + 1
        self._seen[client] = (count, now)
        while len(self._seen) > CLIENTS:
            self._seen.popitem(last=False)
        return count


def delay(count: int) -> float:
    """Return for how many seconds the answer to a client's wrong token waits, by its number."""
    return float(min(LONGEST, FIRST * 2 ** min(count - 1, 32)))


def client_of(host: str) -> str:
    """Return what stands for a client: its address, or with IPv6 its network, since it can choose the rest."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]  # as a proxy says
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class SlowingBackend(BearerAuthBackend):
    """Looks for the token of a request; tells of a wrong one, and lets it wait."""

    def __init__(self, verifier: TokenVerifier) -> None:
        super().__init__(verifier)
        self._failures = Failures()
        self._waiting = 0

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        """Return who bears the token of a request; None for one without a token, or with one that is not known."""
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
