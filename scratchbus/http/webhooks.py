"""Webhooks: the events of a subscription, delivered to a URL.

Each server process pulls for every webhook; the subscription's lease says which one delivers. An event is a CloudEvent,
signed as Standard Webhooks has it, and acked when the receiver has answered with 2xx. Anything else is a failure, which
is retried, and in the end set aside, by the subscription's own rules.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import socket
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from string import punctuation
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import httpcore2
from pydantic_core import to_json

from scratchbus import AsyncBus, Event, Position, PulledEvent, Webhook, cloud_event
from scratchbus.daemon import stderr_logger
from scratchbus.errors import Conflict, LogError, NotFound, ScratchbusError
from scratchbus.http.frames import CLOUD_EVENT
from scratchbus.http.problems import Refusal
from scratchbus.http.server import Server

TIMEOUT: Final = 10.0
"""Seconds for a receiver to answer."""

LEASE: Final = 20.0
"""Seconds after which another process delivers what this one was about to."""

LOOK: Final = 2.0
"""Seconds between two looks at which subscriptions have a webhook."""

GIVE_BACK: Final = 2.0
"""The most seconds that a server which stops takes to give back, ack or fail the event that it delivers."""

_WAIT: Final = 10.0
_REFUSALS: Final = frozenset({400, 413, 415, 422})
_MAX_REFUSALS: Final = 5
_EMBEDDING: Final = IPv6Network("64:ff9b::/96")  # IPv4 behind a translator
_NOT_PUBLIC: Final = (IPv4Network("192.88.99.0/24"), IPv6Network("3fff::/20"))  # old 6to4 relays; documentation

logger = stderr_logger()

Address = IPv4Address | IPv6Address


class _Failure(NamedTuple):
    """Why a delivery failed, and whether that is for the event itself, so that waiting would hardly help."""

    reason: str
    is_event: bool = False


class AddressRefused(Exception):
    """An address that is not public."""


def is_public(address: Address) -> bool:
    """Return whether an address belongs to one host of the public internet."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _EMBEDDING:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def check_host(url: object, allow_private: bool) -> None:
    """Refuse a webhook whose host is not a valid name, or not a public address. Raises Refusal.

    Names are resolved when the webhook is used. The bus refuses what is not a URL.
    """
    try:
        host = (urlsplit(url).hostname or "") if isinstance(url, str) else ""
    except ValueError:
        return
    address = _address_of(host)
    if address is None:
        try:
            host.encode("idna")
        except UnicodeError:
            detail = f"url: {host[:100]!r} is not a host name; its parts have 1 to 63 characters each"
            raise Refusal(422, "invalid-field", detail, field="url") from None
    name = host.removesuffix(".")
    is_local = name == "localhost" or name.endswith(".localhost")
    if not allow_private and (is_local or (address is not None and not is_public(address))):
        detail = f"url: {host} is not a public address; start the server with --allow-private-webhooks"
        raise Refusal(422, "private-address", detail, field="url")


def _address_of(host: str) -> Address | None:
    """Return the address that a host name denotes, also in forms resolvers accept: "127.1", "0x7f000001"."""
    host = host.removesuffix(".")
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def signature(webhook: Webhook, id: str, timestamp: int, content: bytes) -> str:
    """Return the signature of a delivery."""
    signed = b"%b.%d.%b" % (id.encode(), timestamp, content)
    return f"v1,{base64.b64encode(hmac.digest(webhook.key, signed, sha256)).decode()}"


def _request(webhook: Webhook, event: Event, bus: str) -> tuple[dict[bytes | str, bytes | str], bytes]:
    """Return the headers and the content of a delivery."""
    content = to_json(cloud_event(event, bus))
    id, timestamp = _header(event.id), int(time.time())
    headers: dict[bytes | str, bytes | str] = {
        "Content-Type": CLOUD_EVENT,
        "User-Agent": "scratchbus",
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(webhook, id, timestamp, content),
    }
    if event.traceparent is not None:
        headers["traceparent"] = _header(event.traceparent)
    return headers, content


def _header(text: str) -> str:
    """Return a text as the value of a header: all but printable ASCII, which other writers may use, in percent code."""
    return quote(text, safe=punctuation)


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to public addresses only: to the very address that was checked, whatever the name says next time."""

    def __init__(self, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # as httpcore calls it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve a name, check all of its addresses, and connect to one of them. Raises AddressRefused."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ip_address(str(row[4][0]).partition("%")[0]) for row in found]
        if not self._allow_private and not all(map(is_public, addresses)):
            raise AddressRefused(f"{host} is not a public address; start the server with --allow-private-webhooks")
        problem: Exception | None = None
        for address in addresses[:3]:
            try:
                return await self._network.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except httpcore2.NetworkError as error:
                problem = error
        raise problem or OSError(f"{host} has no address")


class Webhooks:
    """Delivers the events of all subscriptions with a URL that no other process delivers."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pool = httpcore2.AsyncConnectionPool(
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=30,
            network_backend=CheckedNetwork(server.allow_private_webhooks),
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, tuple[Position, int]] = {}  # by subscription: an event, and its refusals in a row

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver until exit; what is in flight is given back, and another process delivers it again."""
        watcher = asyncio.create_task(self._watch(), name="webhooks")
        try:
            yield
        finally:
            tasks = [watcher, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._pool.aclose()

    async def _watch(self) -> None:
        was_told = ""
        while True:
            await asyncio.sleep(LOOK)  # also at first: a browser that is opened at the start is served before
            try:
                bus = await self._server.own_bus()
                names = {each.name for each in await bus.subscriptions() if each.url}
                was_told = ""
            except ScratchbusError:  # an engine that is away: look again
                continue
            except Exception as problem:  # such as a subscription that cannot be read: the webhooks found go on
                if str(problem) != was_told:
                    logger.warning("webhooks cannot be looked up", reason=str(problem))
                    was_told = str(problem)
                continue
            for name in names - self._tasks.keys():
                self._tasks[name] = asyncio.create_task(self._deliver(name), name=f"webhook {name}")
            for name in self._tasks.keys() - names:
                self._tasks.pop(name).cancel()
                self._refused.pop(name, None)

    async def _deliver(self, name: str) -> None:
        """Deliver the events of one subscription, one after the other."""
        was_told = ""
        while True:
            try:
                bus = await self._server.own_bus()
                pulled = await bus.pull(name, max=1, wait=_WAIT, lease=LEASE, by="webhook")
                for delivery in pulled.deliveries:
                    await self._hand_over(bus, name, pulled.token, delivery)
                was_told = ""
            except NotFound:
                await asyncio.sleep(LOOK)  # the subscription was removed, or is being replaced
            except Exception as problem:  # one webhook must not end the others, nor itself
                if str(problem) != was_told:
                    logger.warning("a webhook waits", subscription=name, reason=str(problem))
                    was_told = str(problem)
                await asyncio.sleep(30.0 if isinstance(problem, LogError) else 1.0)

    async def _hand_over(self, bus: AsyncBus, name: str, token: str, delivery: PulledEvent) -> None:
        position = delivery.position
        settle = partial(bus.requeue, name, token, [position])
        try:
            try:
                webhook = await bus.webhook(name)
            except ScratchbusError:  # such as NotFound: the webhook was removed meanwhile
                with suppress(ScratchbusError):  # it comes again when the lease ends
                    await settle()
                raise
            failure = await self._send(webhook, delivery.event, bus.settings.bus)
            if failure is None:
                settle = partial(bus.ack, name, token, position)
            else:
                logger.warning("a webhook failed", subscription=name, attempt=delivery.attempt, reason=failure.reason)
                most = self._max_attempts(name, delivery, failure)
                settle = partial(bus.nack, name, token, position, failure.reason, max_attempts=most)
            with suppress(Conflict):  # the lease has ended: another process delivers it
                await settle()
        except asyncio.CancelledError:  # the server stops
            with suppress(ScratchbusError, TimeoutError):  # then it comes again when the lease ends
                async with asyncio.timeout(GIVE_BACK):
                    await settle()  # it may have been sent already, and is safe to repeat
            raise

    def _max_attempts(self, name: str, delivery: PulledEvent, failure: _Failure) -> int | None:
        """Count a refusal; return 1 if the later events need not wait any more, None for the subscription's rules."""
        position, count = self._refused.pop(name, (None, 0))
        if not failure.is_event:
            return None
        count = count + 1 if position == delivery.position and delivery.attempt > 1 else 1
        self._refused[name] = delivery.position, count
        return 1 if count >= _MAX_REFUSALS else None

    async def _send(self, webhook: Webhook, event: Event, bus: str) -> _Failure | None:
        """Send an event; return why that failed, None if it did not."""
        try:
            headers, content = _request(webhook, event, bus)
        except Exception as problem:
            reason = f"{type(problem).__name__}: the event cannot be encoded, or its signature not made"
            return _Failure(reason, is_event=True)
        try:
            async with asyncio.timeout(TIMEOUT):
                async with self._pool.stream("POST", webhook.url, headers=headers, content=content) as answer:
                    if 200 <= answer.status < 300:
                        return None
                    return _Failure(f"it answered {answer.status}", is_event=answer.status in _REFUSALS)
        except TimeoutError:
            return _Failure(f"it did not answer within {TIMEOUT:.0f} s")
        except AddressRefused as refused:
            return _Failure(str(refused))
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError) as problem:
            return _Failure(f"{type(problem).__name__}: it cannot be reached")
        except ValueError as problem:
            return _Failure(f"{type(problem).__name__}: its URL names no host")
