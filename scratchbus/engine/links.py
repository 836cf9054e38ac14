"""Blocking connections to servers, which redis-py opens and closes, and over which the driver speaks itself.

redis-py's own sending and reading costs more than the rest of a driver.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from scratchbus.engine.connections import HUNG_UP, Connection, reply_reader
from scratchbus.late import late

if TYPE_CHECKING:
    from redis import exceptions as redis_errors
else:
    redis_errors = late("redis.exceptions")

_BUFFER = 256 * 1024  # bytes read at once; a projector's chunk is about a megabyte


class Link:
    """A connection to a server, which is opened once. One thread at a time uses it.

    `send` sends bytes; `next_reply` returns a reply that was received, an error too, or UNREAD.
    """

    send: Callable[[bytes], object]
    next_reply: Callable[[], Any]

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.is_open = False

    def open(self) -> None:
        """Open the socket, log in, and choose the database."""
        self._connection.connect()
        self._socket: socket.socket = self._connection._sock
        self._reader = reply_reader()
        self._buffer = bytearray(_BUFFER)
        _let_kernel_time(self._socket)
        self.send, self.next_reply = self._socket.sendall, self._reader.gets
        self.is_open = True

    def receive(self) -> None:
        """Wait for more of a reply. Raises redis-py's ConnectionError when the server hung up, and OSError.

        Of these, BlockingIOError means that it took too long, as TimeoutError does.
        """
        size = self._socket.recv_into(self._buffer)
        if not size:
            raise redis_errors.ConnectionError(HUNG_UP)
        self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]  # it takes any buffer

    def close(self) -> None:
        """Close the socket at once."""
        self.is_open = False
        self._connection.disconnect()

    def hang_up(self) -> None:
        """End what another thread waits for: it is told that the connection broke, and closes it."""
        found = self._connection._sock  # redis-py's own `disconnect` would take it from under that thread
        if isinstance(found, socket.socket):
            with suppress(OSError):  # it broke already
                socket.socket.shutdown(found, socket.SHUT_RDWR)  # that of TLS would take the session from under it too


def _let_kernel_time(found: socket.socket) -> None:
    """Have the kernel bound how long a socket waits; Python's own timeout is a system call more for each send and read.

    TLS needs Python's.
    """
    timeout = found.gettimeout()
    if type(found) is socket.socket and timeout is not None:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            found.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", *divmod(ceil(timeout * 1e6), 1_000_000)))
        found.settimeout(None)
