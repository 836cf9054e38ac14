"""Slow down wrong tokens: each is logged, and answered later than the previous one from the same client.

A valid token is never delayed, so nobody can lock out others, not even from the same address. Only while the maximum
of wrong tokens is waiting, tokens from a client that sent wrong ones are refused unchecked, unless they were valid
before.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final, NoReturn, TypeVar

from scratchbus.telemetry.logs import stderr_logger

T = TypeVar("T")

FIRST_DELAY: Final = 0.05
"""Seconds by which the answer to a client's first wrong token is delayed; each further one doubles the delay."""

MAX_DELAY: Final = 3.0

FORGET_AFTER: Final = 300.0
"""Seconds without a wrong token after which a client's count restarts."""

MAX_CLIENTS: Final = 1024
"""The most clients to remember; beyond that, the one whose last wrong token is oldest is forgotten."""

MAX_DELAYED: Final = 256
"""The most answers delayed at once, since delayed answers use memory. Further requests are refused (429)."""

MAX_VALID: Final = 1024
"""The most tokens to remember as valid, by digest."""

_LOGGED_EACH: Final = 8  # the first are all logged; later only every power of two

logger = stderr_logger()


class Failures:
    """Counts the wrong tokens of each client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, client: str) -> bool:
        return client in self._seen and self._clock() - self._seen[client][1] <= FORGET_AFTER

    def add(self, client: str) -> int:
        """Count a wrong token of a client; return its count."""
        now = self._clock()
        count, last = self._seen.pop(client, (0, now))
        count = 1 if now - last > FORGET_AFTER else count + 1
        self._seen[client] = (count, now)
        while len(self._seen) > MAX_CLIENTS:
            self._seen.popitem(last=False)
        return count


def delay(count: int) -> float:
    """Return the delay in seconds for the count-th wrong token of a client."""
    return float(min(MAX_DELAY, FIRST_DELAY * 2 ** min(count - 1, 32)))


def client_of(host: str) -> str:
    """Return the key of a client: its address, or its /64 network with IPv6, since it can choose the rest."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]  # as given by a proxy
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class TooManyWrong(Exception):
    """A token was not checked, because too many wrong ones are waiting for their answer."""

    retry_after: Final = f"{MAX_DELAY:.0f}"
    """Seconds after which a request is worth a retry."""


class TokenChecks:
    """Checks tokens; logs wrong ones and delays their answers."""

    def __init__(self) -> None:
        self._failures = Failures()
        self._valid: OrderedDict[bytes, None] = OrderedDict()
        self._waiting = 0
        self._unchecked = 0

    async def check(self, token: str, host: str, find: Callable[[str], Awaitable[T | None]]) -> T | None:
        """Return what `find` returns for a token sent from a host; None, later, if it is wrong. Raises TooManyWrong."""
        digest = sha256(token.encode(errors="replace")).digest()
        if self._waiting >= MAX_DELAYED and digest not in self._valid and client_of(host) in self._failures:
            self._refuse_unchecked(client_of(host))
        found = await find(token)
        self._valid.pop(digest, None)
        if found is None:
            await self._refuse(client_of(host))
        else:
            self._valid[digest] = None
            if len(self._valid) > MAX_VALID:
                self._valid.popitem(last=False)
        return found

    async def _refuse(self, client: str) -> None:
        count = self._failures.add(client)
        if _is_logged(count):
            logger.warning("token refused", client=client, failures=count)
        if self._waiting >= MAX_DELAYED:
            self._refuse_unchecked(client)
        self._waiting += 1
        try:
            await asyncio.sleep(delay(count))
        finally:
            self._waiting -= 1

    def _refuse_unchecked(self, client: str) -> NoReturn:
        self._unchecked += 1
        if _is_logged(self._unchecked):
            logger.warning("token refused unchecked", client=client, waiting=self._waiting, unchecked=self._unchecked)
        raise TooManyWrong(f"{MAX_DELAYED} wrong tokens wait for their answers; try again in {MAX_DELAY:.0f} s")


def _is_logged(count: int) -> bool:
    return count <= _LOGGED_EACH or count & (count - 1) == 0
