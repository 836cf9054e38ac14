"""What HTTP servers share: where they listen, and how their process ends."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from typing import Final, NamedTuple

from scratchbus.errors import SettingsError, shown

_LOCALHOST: Final = "127.0.0.1"
_MAX_PORT: Final = 65_535
_MAX_DIGITS: Final = 100  # Python converts no more than some thousands
_BACKLOG: Final = 2_048


class Listener(NamedTuple):
    """A socket that listens, with its numeric address."""

    socket: socket.socket
    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    def url(self, scheme: str = "http") -> str:
        """Return its URL, without a path."""
        return f"{scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def check_address(where: str) -> tuple[str, int]:
    """Return the host and the port of PORT, of this machine alone, or HOST:PORT. Raises SettingsError."""
    host, _, port = where.rpartition(":")
    if not port.isdecimal() or len(port) > _MAX_DIGITS or int(port) > _MAX_PORT:
        raise SettingsError(
            f"{shown(where)} is not an address to listen on; write PORT or HOST:PORT (port 0 picks a free one)"
        )
    return host.strip("[]") or _LOCALHOST, int(port)


def listen(where: str) -> Listener:
    """Listen on PORT, of this machine alone, or on HOST:PORT. Raises SettingsError."""
    host, port = check_address(where)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        opened = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as problem:  # of a host that can be no name
        cause = getattr(problem, "strerror", None) or str(problem)
        cause = cause.partition(" (while")[0]  # where create_server repeats the address
        raise SettingsError(f"cannot listen on {where}: {cause}; choose another port or host") from None
    return Listener(opened, *opened.getsockname()[:2])


def exit_within(seconds: float) -> None:
    """Exit with 0 after this time, even if clients still read: acknowledged writes are in the log, so none is lost."""
    end = threading.Timer(seconds, os._exit, (0,))
    end.daemon = True
    end.start()
