"""Blocking connections to an embedded engine, which send nothing until the server proves to be this user's."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scratchbus.engine.connections import HUNG_UP, UNREAD, pack, reply_reader
from scratchbus.engine.embedded.socket import check_peer, check_socket
from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.errors import EngineUnreachable

BUFFER = 4_096
"""The most bytes that are read at once while connecting."""


@dataclass(kw_only=True, eq=False)
class OwnSocket:
    """The socket `path` of the engine of a directory, and the options of a connection to it."""

    directory: Path
    path: str
    client_name: str
    socket_connect_timeout: float


@dataclass(kw_only=True, eq=False)
class OwnConnection(OwnSocket):
    """A blocking connection to the engine of a directory. It starts fast: no redis-py import."""

    socket_timeout: float
    _sock: socket.socket | None = None

    def connect(self) -> None:
        """Open the socket, unless it is open, and set the client's name. Raises redis-py's errors."""
        if self._sock is not None:
            return
        with redis_py_errors(self.path):
            try:
                self._sock = self._open_socket()
                self._introduce(self._sock)
            except BaseException:
                self.disconnect()
                raise

    def _open_socket(self) -> socket.socket:
        path = Path(self.path)
        check_socket(path, self.directory)
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(self.socket_connect_timeout)
            sock.connect(self.path)
            check_peer(sock, path)
            sock.settimeout(self.socket_timeout)
        except BaseException:
            sock.close()
            raise
        return sock

    def _introduce(self, sock: socket.socket) -> None:
        sock.sendall(introduction(self.client_name))
        reader = reply_reader()
        while (reply := reader.gets()) is UNREAD:
            received = sock.recv(BUFFER)
            if not received:
                raise redis_errors.ConnectionError(HUNG_UP)
            reader.feed(received)
        if isinstance(reply, Exception):
            raise reply

    def disconnect(self, *_: Any) -> None:
        """Close the socket."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def __del__(self) -> None:
        self.disconnect()


def introduction(client_name: str) -> bytes:
    """Return the first request of a connection, which sets its name."""
    return pack((("CLIENT", "SETNAME", client_name),))


@contextmanager
def redis_py_errors(path: str) -> Iterator[None]:
    """Raise the errors of opening a socket at `path` as redis-py's."""
    try:
        yield
    except TimeoutError:
        raise redis_errors.TimeoutError("Timeout connecting to server") from None
    except OSError as problem:
        message = f"Error {problem.errno} connecting to {path}. {problem.strerror}."
        raise redis_errors.ConnectionError(message) from problem
    except EngineUnreachable as problem:
        raise redis_errors.ConnectionError(str(problem)) from problem
