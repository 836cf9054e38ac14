"""Engine URLs: parsing them, creating connections from them, and showing them without their passwords."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from scratchbus.engine.connections import AsyncConnection, Connection
from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.redirects import ONLY_SERVER, Address
from scratchbus.errors import InvalidURL
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    from redis import connection as blocking
    from redis.asyncio import connection as nonblocking

SCHEMES = (
    "redis://, rediss://, unix://, redis+cluster://host,host, redis+sentinel://host,host/master,"
    " embedded:[directory], memory://name"
)

_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
"""The options of a URL that name files."""

_BARE_USER = re.compile(r"^([^:]*:/*).*@")  # in a malformed URL without //
_PASSWORD_OPTION = re.compile(r"(password=)[^&]*", re.IGNORECASE)
_PORT, _SENTINEL_PORT = 6379, 26379


class Makers(NamedTuple):
    """Functions that create connections to the server of a URL, or with its options to an address that names a host."""

    blocking: Callable[..., Connection]
    nonblocking: Callable[..., AsyncConnection]

    def make(self, timeout: float | None, address: Address) -> Connection:
        """Create a blocking connection; a reply may take at most `timeout` seconds."""
        return self.blocking(socket_timeout=timeout, **_at(address))

    def amake(self, address: Address) -> AsyncConnection:
        """Create an asyncio connection."""
        return self.nonblocking(socket_timeout=None, **_at(address))


def _at(address: Address) -> dict[str, Any]:
    return {"host": address[0], "port": address[1]} if address[0] else {}


def makers(url: str, options: Mapping[str, Any], shown: str) -> Makers:
    """Return the makers of connections with these options and those of a URL. Raises InvalidURL, quoting `shown`."""
    try:
        parsed: dict[str, Any] = dict(blocking.parse_url(url))  # type: ignore[no-untyped-call]  # redis-py's
        aparsed: dict[str, Any] = dict(nonblocking.parse_url(url))
    except (ValueError, TypeError) as error:
        raise _not_a_url(shown, error) from None
    cls = parsed.pop("connection_class", blocking.Connection)
    acls = aparsed.pop("connection_class", nonblocking.Connection)
    managed = {"protocol", "retry", "decode_responses", "socket_timeout"}
    merged = {**options, **{name: value for name, value in parsed.items() if name not in managed}}
    amerged = {**options, **{name: value for name, value in aparsed.items() if name not in managed}}
    for option in _FILES & merged.keys():
        if not Path(merged[option]).is_file():
            raise InvalidURL(f"{without_password(shown)!r}: the file of {option} does not exist; check its path")
    result = Makers(lambda **address: cls(**{**merged, **address}), lambda **address: acls(**{**amerged, **address}))
    try:
        result.make(None, ONLY_SERVER), result.amake(ONLY_SERVER)  # these validate the options
    except (ValueError, TypeError, redis_errors.RedisError) as error:
        raise _not_a_url(shown, error) from None
    return result


class ManyHosts(NamedTuple):
    """A URL of several hosts: their addresses, the path, and URLs with the options for one server or sentinel."""

    addresses: list[Address]
    name: str
    server: str
    sentinel: str


def read_hosts(url: str) -> ManyHosts:
    """Read a URL like `redis+cluster://[user:pass@]host:port,host:port[/name][?options]`. Raises InvalidURL.

    The user and password are those of the servers; those of the sentinels are the options `sentinel_username` and
    `sentinel_password`.
    """
    try:
        parts = urlsplit(url)
        login, at, hosts = parts.netloc.rpartition("@")
        port = _SENTINEL_PORT if parts.scheme.endswith("sentinel") else _PORT
        parsed = [urlsplit(f"//{host}") for host in hosts.split(",")]
        addresses = [(host.hostname or "", host.port or port) for host in parsed]
    except ValueError as error:
        raise _not_a_url(url, error) from None
    if not all(host for host, _ in addresses):
        raise InvalidURL(f"{without_password(url)!r} names no host; write one of: {SCHEMES}")
    base = parts.scheme.partition("+")[0]
    options = dict(parse_qsl(parts.query))
    user, password = (quote(options.pop(f"sentinel_{name}", ""), safe="") for name in ("username", "password"))
    server = f"{base}://{login}{at}localhost/?{urlencode(options)}"
    options.pop("db", None)  # sentinels have none
    sentinel = f"{base}://{user}:{password}@localhost/?{urlencode(options)}"
    return ManyHosts(addresses, unquote(parts.path.strip("/")), server, sentinel)


def _not_a_url(url: str, error: Exception) -> InvalidURL:
    shown = without_password(url)
    reason = str(error).rpartition("got an ")[2]  # for an unknown option, without the name of redis-py's function
    option = reason.partition("keyword argument '")[2].partition("'")[0]
    is_safe = shown == url or (option != "" and f"{option}=" in shown)  # the reason may quote part of the password
    detail = f": {reason}" if is_safe else ""
    return InvalidURL(f"{shown!r} is not an engine URL{detail}; write one of: {SCHEMES}")


def check_hosts(url: str) -> None:
    """Raise InvalidURL for a name that no host can have; looking it up would fail with a UnicodeError."""
    try:
        url.encode()
        hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    except ValueError as problem:
        raise _not_a_url(url, problem) from None
    for host in hosts:
        name = host.rpartition(":")[0] if ":" in host else host
        try:
            name.encode("idna")
        except UnicodeError:
            detail = f"{name[:100]!r} is not a host name; its parts have 1 to 63 characters each"
            raise _not_a_url(url, ValueError(detail)) from None


def without_password(url: str) -> str:
    """Return a URL with `***` for its passwords, wherever they are, even if the URL is malformed."""
    scheme, separator, remainder = url.partition("://")
    if not separator and scheme.partition(":")[0].lower() not in ("embedded", "memory"):
        scheme = _BARE_USER.sub(r"\1***@", scheme)
    if "@" in remainder and not remainder.startswith("/"):
        user, host = remainder.rpartition("@")[::2]
        name, colon, _ = user.partition(":")
        remainder = f"{name}:***@{host}" if colon else remainder
    return _PASSWORD_OPTION.sub(r"\1***", scheme + separator + remainder)
