"""Resolving a URL to an engine and its drivers: the scheme picks the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scratchbus.engine.cluster import Cluster
from scratchbus.engine.connections import Revive
from scratchbus.engine.drivers import Engine
from scratchbus.engine.embedded.own_connection import OwnConnection
from scratchbus.engine.embedded.server import directory_of, ensure_running
from scratchbus.engine.links import Link
from scratchbus.engine.redirects import Address, OneServer, Topology
from scratchbus.engine.scripts import Script
from scratchbus.engine.sentinel import Sentinels
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.engine.urls import SCHEMES, Makers, check_hosts, makers, read_hosts, without_password
from scratchbus.errors import EngineForbidden, EngineMisconfigured, EngineTooOld, InvalidURL
from scratchbus.telemetry.lazy import imported_on_first_use

if TYPE_CHECKING:
    from scratchbus.engine.drivers_async import AsyncEngine
    from scratchbus.engine.links_async import AsyncLink

with imported_on_first_use(__name__):
    from redis import backoff, retry

    from scratchbus.engine import drivers_async, links_async
    from scratchbus.engine.embedded import own_connection_async

UNKNOWN = "unknown"
"""Stands for information that this user may not read from the server."""

OLDEST = (7, 0)
"""The oldest supported version of Redis; every Valkey from 8 on is newer."""

_SECTIONS = ("server", "memory", "persistence", "replication")  # of INFO
_FSYNC = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}  # what ack=fsync needs
_WAIT_TIMEOUT = 15.0  # seconds; longer than any call blocks, so that only a hanging engine times out


@dataclass(frozen=True)
class Target:
    """The engine that a URL names: functions that create connections to it, and its name in messages."""

    url: str = field(repr=False)  # it may hold a password
    where: str
    kind: str
    make: Callable[[float, Address], Link]
    amake: Callable[[float, Address], AsyncLink]
    timeout: float = 5.0
    directory: Path | None = None
    revive: Revive = None
    topology: Topology = field(default_factory=OneServer)

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return without_password(self.url)

    def engine(self) -> Engine:
        """Return a blocking driver."""
        return Engine(partial(self.make, self.timeout), self.where, self.topology, self.revive, counts_errors=True)

    def async_engine(self) -> AsyncEngine:
        """Return an asyncio driver."""
        make = partial(self.amake, self.timeout)
        return drivers_async.AsyncEngine(make, self.where, self.topology, self.timeout, self.revive, counts_errors=True)

    def reader(self) -> Engine:
        """Return a blocking driver for calls that wait on the log."""
        return Engine(partial(self.make, _WAIT_TIMEOUT), self.where, self.topology, self.revive)

    def async_reader(self) -> AsyncEngine:
        """Return an asyncio driver for calls that wait on the log."""
        return drivers_async.AsyncEngine(
            partial(self.amake, _WAIT_TIMEOUT), self.where, self.topology, _WAIT_TIMEOUT, self.revive
        )


def target(
    url: str | None,
    *,
    home: Path | None,
    appendfsync: str,
    socket_timeout: float,
    connect_timeout: float,
    bus: str = "",
) -> Target:
    """Return the engine that a URL names; the embedded engine is started if it is not running.

    An embedded engine that crashes later is restarted by the next process that needs it; one that was stopped is not.
    `bus` is the bus whose shards are looked up on a cluster. Raises InvalidURL, EngineMissing, ForeignData or
    EngineUnreachable.
    """
    options: dict[str, Any] = {"socket_connect_timeout": connect_timeout, "client_name": "scratchbus"}
    url = url or "embedded:"
    directory = directory_of(url, home)
    if directory is not None:
        return _embedded(directory, appendfsync, options, socket_timeout)
    if url.partition(":")[0].lower() == "memory":
        return _memory(url)
    check_hosts(url)
    options |= {"retry": retry.Retry(backoff.NoBackoff(), 0), "protocol": 2, "driver_info": None}
    match url.partition("://")[0].lower() if "://" in url else "":
        case "redis" | "rediss" | "unix":
            return _server(url, options, socket_timeout)
        case "redis+cluster" | "rediss+cluster":
            return _cluster(url, bus, options, socket_timeout)
        case "redis+sentinel" | "rediss+sentinel":
            return _sentinel(url, options, socket_timeout)
    raise InvalidURL(f"{without_password(url)!r} is not an engine URL; write one of: {SCHEMES}")


def _embedded(directory: Path, appendfsync: str, options: dict[str, Any], socket_timeout: float) -> Target:
    running = ensure_running(directory, appendfsync=appendfsync)
    options = {**options, "directory": running.directory, "path": str(running.socket)}
    return Target(
        f"embedded:{directory}",
        f"the embedded engine in {directory}",
        "embedded",
        lambda timeout, _: Link(OwnConnection(socket_timeout=timeout, **options)),
        lambda timeout, _: links_async.AsyncLink(own_connection_async.AsyncOwnConnection(**options), timeout),
        socket_timeout,
        directory,
        lambda: ensure_running(running.directory, appendfsync=appendfsync, timeout=socket_timeout, unless_stopped=True),
    )


def _server(url: str, options: dict[str, Any], socket_timeout: float) -> Target:
    is_socket, path = url.lower().startswith("unix:"), urlsplit(url).path.strip("/")
    if is_socket and not path:
        raise InvalidURL(f"{without_password(url)!r} names no socket; write unix:///path/to.sock")
    # With a path that is no number, redis-py would use database 0. The path may be the end of a password.
    if not is_socket and path and not path.isdecimal():
        raise InvalidURL(
            f"{without_password(url)!r}: a database is a number; end the URL with one, such as /3, or after the host"
        )
    server_makers = makers(url, options, url)
    return _remote(url, "server", "engine", socket_timeout, lambda _: server_makers, OneServer())


def _cluster(url: str, bus: str, options: dict[str, Any], socket_timeout: float) -> Target:
    hosts = read_hosts(url)
    if hosts.name:
        raise InvalidURL(f"{without_password(url)!r}: a cluster has no databases; end the URL after the hosts")
    server_makers = makers(hosts.server, options, url)
    return _remote(url, "cluster", "cluster", socket_timeout, lambda _: server_makers, Cluster(hosts.addresses, bus))


def _sentinel(url: str, options: dict[str, Any], socket_timeout: float) -> Target:
    hosts = read_hosts(url)
    if not hosts.name:
        raise InvalidURL(f"{without_password(url)!r} names no master; write redis+sentinel://host,host/NAME")
    server_makers, sentinels = makers(hosts.server, options, url), makers(hosts.sentinel, options, url)

    def makers_of(address: Address) -> Makers:
        return sentinels if address in hosts.addresses else server_makers

    return _remote(url, "sentinel", "engine", socket_timeout, makers_of, Sentinels(hosts.addresses, hosts.name))


def _remote(
    url: str, kind: str, noun: str, socket_timeout: float, makers_of: Callable[[Address], Makers], topology: Topology
) -> Target:
    """Return the target of servers to which redis-py opens the connections; `noun` is its name in messages."""
    return Target(
        url,
        f"the {noun} at {without_password(url)}",
        kind,
        lambda timeout, address: Link(makers_of(address).make(timeout, address)),
        lambda timeout, address: links_async.AsyncLink(makers_of(address).amake(address), timeout),
        socket_timeout,
        topology=topology,
    )


def _memory(url: str) -> Target:
    from scratchbus.engine.in_process import in_process_engine  # late: it imports fakeredis

    name = url.partition(":")[2].removeprefix("//")
    engine = in_process_engine(name)
    return Target(
        url,
        f"the memory engine {name!r}",
        "memory",
        lambda *_: engine.link(),
        lambda *_: engine.async_link(),
    )


def read_info(shard: int) -> Step[dict[str, str]]:
    """Return what INFO says about the server of a shard: its version, memory, persistence and replication."""
    texts = yield from ask_all(shard, [("INFO", section) for section in _SECTIONS])
    return dict(line.split(":", 1) for text in texts for line in text.decode().splitlines() if ":" in line)


def risks(info: Mapping[str, str], replicas: int) -> list[str]:
    """Return how a server with this configuration may lose or refuse writes, one sentence for each risk.

    `replicas` is the number of replicas that must have a write before it is acknowledged.
    """
    found = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and info.get("maxmemory", "0") != "0":
        found.append(f"it evicts events when its memory is full ({policy}); set `maxmemory-policy noeviction`")
    if info.get("aof_enabled") == "0":
        found.append("it loses events when it is restarted; set `appendonly yes`")
    if info.get("aof_last_write_status") == "err":
        found.append("its append-only file lacks the last writes, which a crash would lose; free space on its disk")
    connected = int(info.get("connected_slaves", replicas))
    if connected < replicas:
        found.append(f"it has {connected} replicas, not {replicas}: every write raises NotReplicated until they are up")
    return found


def load_reading_scripts(shard: int) -> Step[None]:
    """Load the scripts for users with read-only permissions, who cannot; do nothing if this user may not either."""
    with suppress(EngineForbidden):
        yield from ask_all(shard, list(Script.reading))


def check_engine(target: Target, ack: str, shard: int) -> Step[dict[str, str]]:
    """Check the server of a shard and return its INFO, as far as this user may read it.

    Raises EngineTooOld, or EngineMisconfigured if it does not support this `ack`.
    """
    info = yield from _read_checked_info(target.where, shard)
    if ack == "fsync":
        row = yield from ask(shard, "CONFIG", "GET", *_FSYNC)
        found = {row[at].decode(): row[at + 1].decode() for at in range(0, len(row), 2)}
        wrong = [name for name, value in _FSYNC.items() if found.get(name) != value]
        if wrong:
            advice = f"set {' and '.join(f'`{name} {_FSYNC[name]}`' for name in wrong)} on the server"
            if target.directory is not None:
                advice = "stop it with `scratchbus stop`, and set SCRATCHBUS_APPENDFSYNC=always before it starts again"
            raise EngineMisconfigured(
                f"ack=fsync: {target.where} has {' and '.join(f'{name} {found.get(name)}' for name in wrong)}; {advice}"
            )
    return info


def _read_checked_info(where: str, shard: int) -> Step[dict[str, str]]:
    try:
        info = yield from read_info(shard)
    except EngineForbidden:
        return {"engine": UNKNOWN, "version": UNKNOWN}
    if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):  # the second is that of Valkey
        raise EngineMisconfigured(
            f"{where} is a sentinel; write redis+sentinel://host:port/NAME, with its master's name"
        )
    version = info.get("valkey_version") or info.get("redis_version", "0")
    engine = "Valkey" if "valkey_version" in info else "Redis"
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        raise EngineTooOld(f"{where} is {engine} {version}; scratchbus needs Redis 7.0 or Valkey 8 or newer")
    return {"engine": engine, "version": version, **info}
