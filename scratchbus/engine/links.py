"""Blocking connections to servers, which redis-py opens and closes, and over which the driver speaks itself.

redis-py's own sending and reading costs more than the rest of a driver.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from scratchbus.engine.connections import HUNG_UP, Connection, reply_reader
from scratchbus.telemetry.late import late

if TYPE_CHECKING:
    from redis import exceptions as redis_errors
else:
    redis_errors = late("redis.exceptions")

_BUFFER = 256 * 1024  # bytes read at once; a projector's chunk is about a megabyte
_SMALL = 4 * 1024  # bytes that a socket takes without waiting, when the server has read all before them


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
        self.send, self.next_reply = self._socket.sendall, self._reader.gets
        self._timeout = self._socket.gettimeout()
        self._poll: select.poll | None = None
        if sys.platform == "linux" and type(self._socket) is socket.socket and self._timeout is not None:
            _let_kernel_time(self._socket, self._timeout)
            self.send, self._poll, self._milliseconds = self._send_in_time, select.poll(), self._timeout * 1_000
            self._poll.register(self._socket, select.POLLIN)
        self.is_open = True

    def _send_in_time(self, packed: bytes) -> None:
        """Send bytes on a socket that the kernel times, and with Python's timeout where that is of no use."""
        if len(packed) > _SMALL and _may_handle_signals():
            self._socket.settimeout(self._timeout)
            self._socket.sendall(packed)
            self._socket.settimeout(None)
        else:
            self._socket.sendall(packed)

    def receive(self) -> None:
        """Wait for more of a reply. Raises redis-py's ConnectionError when the server hung up, and OSError.

        Of these, BlockingIOError means that it took too long, as TimeoutError does.
        """
        if self._poll is not None and _may_handle_signals() and not self._poll.poll(self._milliseconds):
            raise TimeoutError
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


def _let_kernel_time(found: socket.socket, timeout: float) -> None:
    """Have the kernel bound how long a socket waits; Python's own timeout is a system call more for each send and read.

    TLS needs Python's, and on other systems than Linux the option looks different.
    """
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        found.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", *divmod(ceil(timeout * 1e6), 1_000_000)))
    found.settimeout(None)


def _may_handle_signals() -> bool:
    """Return whether this thread is the one that handles signals.

    After a signal, Python restarts the interrupted call, and with it the kernel's timeout.
    """
    return threading.get_ident() == threading.main_thread().ident
