"""From a URL to the drivers: the scheme picks the engine."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import connection as blocking
from redis.asyncio import connection as nonblocking
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from scratchbus.errors import EngineForbidden, EngineMisconfigured, EngineTooOld, InvalidURL
from scratchbus.log.connections import AsyncConnection, Connection
from scratchbus.log.embedded import directory_of, ensure_running
from scratchbus.log.engine import AsyncEngine, Engine, Revive
from scratchbus.log.steps import Step, ask, ask_all

UNKNOWN = "unknown"
"""What stands for what the server does not tell this user."""

OLDEST = (7, 0)
"""The oldest Redis that will do; every Valkey from 8 on is newer."""

_PASSWORD_OPTION = re.compile(r"(password=)[^&]*", re.IGNORECASE)
_READ_SIZE = 256 * 1024  # bytes at once; a projector's chunk is about a megabyte
_WAITING = 15.0  # seconds; longer than any call blocks, so that an engine that hangs is noticed

_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
"""The options of a URL that name files."""

SCHEMES = "redis://, rediss://, unix://, embedded:[directory], memory://name"


@dataclass(frozen=True)
class Target:
    """An engine that a URL names: how to make connections to it, and how to call it in messages."""

    url: str = field(repr=False)  # it may hold a password
    where: str
    kind: str
    make: Callable[[float | None], Connection]
    amake: Callable[[], AsyncConnection]
    timeout: float = 5.0
    directory: Path | None = None
    revive: Revive = None

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return _without_password(self.url)

    def engine(self) -> Engine:
        """Return a blocking driver."""
        return Engine(lambda: self.make(self.timeout), self.where, self.revive)

    def async_engine(self) -> AsyncEngine:
        """Return an asyncio driver."""
        return AsyncEngine(self.amake, self.where, self.timeout, self.revive)

    def reader(self) -> Engine:
        """Return a blocking driver for calls that wait on the log."""
        return Engine(lambda: self.make(_WAITING), self.where, self.revive)

    def async_reader(self) -> AsyncEngine:
        """Return an asyncio driver for calls that wait on the log."""
        return AsyncEngine(self.amake, self.where, _WAITING, self.revive)


def target(
    url: str | None, *, home: Path | None, appendfsync: str, socket_timeout: float, connect_timeout: float
) -> Target:
    """Return the engine that a URL names; the embedded one is started if it is not running.

    One that crashes later is started again by whoever needs it next; one that is stopped is not. Raises InvalidURL,
    EngineMissing, ForeignData or EngineUnreachable.
    """
    options = {
        "socket_connect_timeout": connect_timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "scratchbus",
        "socket_read_size": _READ_SIZE,
        "driver_info": None,
    }
    url = url or "embedded:"
    directory = directory_of(url, home)
    if directory is not None:
        return _embedded(directory, appendfsync, options, socket_timeout)
    match url.partition(":")[0].lower():
        case "memory":
            return _memory(url)
        case "redis" | "rediss" | "unix":
            return _server(url, options, socket_timeout)
    raise InvalidURL(f"{_without_password(url)!r} is not an engine URL; write one of: {SCHEMES}")


def _embedded(directory: Path, appendfsync: str, options: dict[str, Any], socket_timeout: float) -> Target:
    running = ensure_running(directory, appendfsync=appendfsync)
    path = str(running.socket)
    cls: Any = blocking.UnixDomainSocketConnection
    return Target(
        f"embedded:{directory}",
        f"the embedded engine in {directory}",
        "embedded",
        lambda timeout: cls(path=path, socket_timeout=timeout, **options),
        lambda: nonblocking.UnixDomainSocketConnection(path=path, socket_timeout=None, **options),
        socket_timeout,
        directory,
        lambda: ensure_running(running.directory, appendfsync=appendfsync, timeout=socket_timeout, unless_stopped=True),
    )


def _server(url: str, options: dict[str, Any], socket_timeout: float) -> Target:
    try:
        parsed: dict[str, Any] = dict(blocking.parse_url(url))  # type: ignore[no-untyped-call]  # redis-py's
        aparsed: dict[str, Any] = dict(nonblocking.parse_url(url))
    except (ValueError, TypeError) as error:
        raise _not_a_url(url, error) from None
    cls = parsed.pop("connection_class", blocking.Connection)
    acls = aparsed.pop("connection_class", nonblocking.Connection)
    own = {"protocol", "retry", "decode_responses", "socket_timeout"}
    kept = options | {name: value for name, value in parsed.items() if name not in own}
    akept = options | {name: value for name, value in aparsed.items() if name not in own}
    for option in _FILES & kept.keys():
        if not Path(kept[option]).is_file():
            raise InvalidURL(f"{_without_password(url)!r}: {option}: there is no such file; check its path")
    try:
        cls(socket_timeout=socket_timeout, **kept), acls(socket_timeout=None, **akept)  # which looks at the options
    except (ValueError, TypeError, RedisError) as error:
        raise _not_a_url(url, error) from None
    return Target(
        url,
        f"the engine at {_without_password(url)}",
        "server",
        lambda timeout: cls(socket_timeout=timeout, **kept),
        lambda: acls(socket_timeout=None, **akept),
        socket_timeout,
    )


def _not_a_url(url: str, error: Exception) -> InvalidURL:
    shown = _without_password(url)
    reason = str(error).rpartition("got an ")[2]  # of a wrong option without the name of the function it was given to
    why = f": {reason}" if shown == url else ""  # the reason may quote a part of the password
    return InvalidURL(f"{shown!r} is not an engine URL{why}; write one of: {SCHEMES}")


def _memory(url: str) -> Target:
    try:
        from fakeredis import FakeRedis, FakeServer
        from fakeredis._commands import SUPPORTED_COMMANDS
        from fakeredis.aioredis import FakeRedis as AsyncFakeRedis
    except ImportError:
        raise EngineMisconfigured("memory:// needs fakeredis: pip install 'fakeredis[lua]'") from None
    for verb in ("eval", "evalsha"):  # it does not know that a script may be sent as one that only reads
        SUPPORTED_COMMANDS.setdefault(f"{verb}_ro", SUPPORTED_COMMANDS[verb])
    name = url.partition(":")[2].removeprefix("//")
    with _servers_lock:
        server = _servers.get(name) or _servers.setdefault(name, FakeServer(version=(7,)))
    pool: Any = FakeRedis(server=server, protocol=2).connection_pool
    apool: Any = AsyncFakeRedis(server=server, protocol=2, socket_timeout=None).connection_pool
    return Target(
        url,
        f"the memory engine {name!r}",
        "memory",
        lambda _: pool.make_connection(),
        apool.make_connection,
    )


_servers: dict[str, Any] = {}
_servers_lock = threading.Lock()


def _without_password(url: str) -> str:
    """Return a URL with `***` for its password, wherever it stands, also when the URL is not well formed."""
    scheme, mark, rest = url.partition("://")
    if "@" in rest and not rest.startswith("/"):
        user, place = rest.rpartition("@")[::2]
        name, colon, _ = user.partition(":")
        rest = f"{name}:***@{place}" if colon else rest
    return _PASSWORD_OPTION.sub(r"\1***", scheme + mark + rest)


def read_info(*sections: str) -> Step[dict[str, str]]:
    """Return what the server says of itself in these sections of its INFO."""
    texts = yield from ask_all(0, [("INFO", section) for section in sections])
    return dict(line.split(":", 1) for text in texts for line in text.decode().splitlines() if ":" in line)


def risks(info: Mapping[str, str]) -> list[str]:
    """Return, a sentence each, how a server that is set up like this may lose what it acknowledged."""
    found = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and info.get("maxmemory", "0") != "0":
        found.append(f"it throws events away when its memory is full ({policy}); set `maxmemory-policy noeviction`")
    if info.get("aof_enabled") == "0":
        found.append("it loses events when it is restarted; set `appendonly yes`")
    return found


def check_engine(where: str, ack: str) -> Step[dict[str, str]]:
    """Return what the server says of itself, as far as this user may ask.

    Raises EngineTooOld, or EngineMisconfigured for what `ack` needs.
    """
    about = yield from _about(where)
    if ack == "fsync":
        row = yield from ask(0, "CONFIG", "GET", "appendfsync", "appendonly")
        found = {row[at].decode(): row[at + 1].decode() for at in range(0, len(row), 2)}
        if found != {"appendfsync": "always", "appendonly": "yes"}:
            raise EngineMisconfigured(
                f"ack=fsync: {where} has appendonly {found.get('appendonly')} and appendfsync"
                f" {found.get('appendfsync')}; set `appendonly yes` and `appendfsync always` on the server"
            )
    return about


def _about(where: str) -> Step[dict[str, str]]:
    try:
        info = yield from read_info("server", "memory", "persistence")
    except EngineForbidden:
        return {"engine": UNKNOWN, "version": UNKNOWN}
    version = info.get("valkey_version") or info.get("redis_version", "0")
    engine = "Valkey" if "valkey_version" in info else "Redis"
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        raise EngineTooOld(f"{where} is {engine} {version}; scratchbus needs Redis 7.0 or Valkey 8 or newer")
    return {"engine": engine, "version": version, **info}
