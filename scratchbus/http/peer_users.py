"""The user of the process at the other end of a connection on this machine, from the kernel's tables."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

NOBODY: Final = -1
"""The user of a connection whose other end is closed already."""

_TABLES: Final = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
_ESTABLISHED: Final = 1
_MAPPED: Final = bytes(10) + b"\xff\xff"


def uid_of(connection: socket.socket | None) -> int | None:
    """Return the owner of the socket at the other end of a connection, NOBODY once it is closed.

    Returns None where the kernel does not tell. Its table shows a socket that a process has closed as root's. Our end
    is no longer established then, so its state is read last.
    """
    if connection is None or connection.family not in _TABLES or not sys.platform.startswith("linux"):
        return None
    try:
        local, peer = connection.getsockname(), connection.getpeername()
    except OSError:
        return NOBODY
    try:
        found = _owner(socket.AddressFamily(connection.family), peer, local)
    except OSError:
        return None
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return found if state == _ESTABLISHED else NOBODY


def _owner(family: socket.AddressFamily, peer: tuple[Any, ...], local: tuple[Any, ...]) -> int:
    for table, first, second in _entries(family, peer, local):
        for line in _TABLES[table].read_text().splitlines()[1:]:
            columns = line.split()
            if columns[1] == first and columns[2] == second and int(columns[3], 16) == _ESTABLISHED:
                return int(columns[7])
    return NOBODY


def _entries(
    family: socket.AddressFamily, peer: tuple[Any, ...], local: tuple[Any, ...]
) -> Iterator[tuple[socket.AddressFamily, str, str]]:
    """Yield the tables that may have the other end, with both addresses as they show them."""
    first, second = (socket.inet_pton(family, each[0]) for each in (peer, local))
    yield family, _entry(first, peer[1]), _entry(second, local[1])
    if family == socket.AF_INET:  # an IPv6 socket can reach us too
        yield socket.AF_INET6, _entry(_MAPPED + first, peer[1]), _entry(_MAPPED + second, local[1])


def _entry(packed: bytes, port: int) -> str:
    """Return an address as the kernel's table shows it: words in the machine's byte order."""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
