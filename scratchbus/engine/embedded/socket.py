"""Checks that the socket of an embedded engine, and the server behind it, belong to this user.

Anyone may create files in a directory for temporary files. So the owner and mode of the socket and its directory are
checked before connecting, and the server's user after connecting, before the first byte is sent. The second check
detects a socket that was replaced in between.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import Protocol

from scratchbus.errors import EngineUnreachable

_OPTIONS = {
    # SO_PEERCRED: struct ucred has pid, effective uid, gid
    "linux": (socket.SOL_SOCKET, getattr(socket, "SO_PEERCRED", 17), struct.Struct("iII"), 1),
    # LOCAL_PEERCRED at SOL_LOCAL: struct xucred has a version, effective uid, and groups
    "darwin": (0, 1, struct.Struct("IIh2x16I"), 1),
}
"""By platform, the socket option that returns the listener's user: level, name, format, and the index of the uid."""


class Socket(Protocol):
    """The part that we use of a socket, Python's or an event loop's."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Return an option."""
        ...


def check_socket(path: Path, directory: Path) -> bool:
    """Return True if a socket of this user is at `path`, False if nothing is there.

    `directory` is the engine's own. Raises EngineUnreachable if the socket, or the directory it is in, belongs to
    another user or is open to others.
    """
    try:
        if path.parent == directory:
            problem = _socket_problem(path) or _directory_problem(directory)
        else:
            problem = shared_directory_problem(path.parent) or _socket_problem(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if problem is not None:
        raise EngineUnreachable(problem)
    return True


def check_peer(connection: Socket, path: Path) -> None:
    """Raise EngineUnreachable if another user's process listens, as far as the system reports it."""
    uid = peer_uid(connection)
    if uid is not None and uid != os.geteuid():
        raise EngineUnreachable(
            f"another user (uid {uid}) listens at {path}; nothing was sent. Find out who it is, and remove the socket"
        )


def peer_uid(connection: Socket) -> int | None:
    """Return the uid of the listener at the other end; None if the system does not report it."""
    option = _OPTIONS.get(sys.platform)
    if option is None:
        return None
    level, name, layout, index = option
    return int(layout.unpack(connection.getsockopt(level, name, layout.size))[index])


def shared_directory_problem(path: Path) -> str | None:
    """Return what is wrong with a directory below the one for temporary files; None if only this user has access."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        problem = "is not a directory; remove it"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to another user (uid {status.st_uid}); remove it"
    elif status.st_mode & 0o077:
        problem = "is open to others; chmod 700 it"
    else:
        return None
    return f"{path} {problem}, or set TMPDIR to a directory of your own"


def _directory_problem(path: Path) -> str | None:
    status = path.stat()
    if status.st_uid != os.geteuid():
        return f"{path} belongs to another user (uid {status.st_uid}); use a directory of your own"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to {path}; chmod 700 it, or use another directory"
    return None


def _socket_problem(path: Path) -> str | None:
    status = path.lstat()
    if not stat.S_ISSOCK(status.st_mode):
        return f"{path} is not a socket; remove it and try again"
    if status.st_uid != os.geteuid():
        return f"{path} belongs to another user (uid {status.st_uid}); remove it and try again"
    if status.st_mode & 0o077:
        return f"{path} is open to others; chmod 700 it and try again"
    return None
