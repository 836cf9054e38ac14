"""Blocking connections to servers: redis-py opens and closes them, this module sends and receives.

redis-py's own sending and receiving costs more than the rest of a driver.
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
from typing import Any

from scratchbus.engine.connections import HUNG_UP, Connection, reply_reader
from scratchbus.engine.lazy_packages import redis_errors

_BUFFER = 256 * 1024  # bytes per read; a projector's chunk is about a megabyte
_SMALL = 4 * 1024  # bytes that a socket accepts without blocking once the server has read all earlier ones


class Link:
    """A connection to a server, opened once. One thread at a time uses it.

    `send` sends bytes; `next_reply` returns a received reply, which may be an error, or UNREAD.
    """

    send: Callable[[bytes], object]
    next_reply: Callable[[], Any]

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.is_open = False

    def open(self) -> None:
        """Open the socket, log in and select the database."""
        self._connection.connect()
        self._socket: socket.socket = self._connection._sock
        self._reader = reply_reader()
        self._buffer = bytearray(_BUFFER)
        self.send, self.next_reply = self._socket.sendall, self._reader.gets
        self._timeout = self._socket.gettimeout()
        self._poll: select.poll | None = None
        if sys.platform == "linux" and type(self._socket) is socket.socket and self._timeout is not None:
            _use_kernel_timeout(self._socket, self._timeout)
            self.send, self._poll, self._milliseconds = self._send_in_time, select.poll(), self._timeout * 1_000
            self._poll.register(self._socket, select.POLLIN)
        self.is_open = True

    def _send_in_time(self, packed: bytes) -> None:
        """Send bytes under the kernel's timeout, or under Python's where signals would restart the kernel's."""
        if len(packed) > _SMALL and _may_handle_signals():
            self._socket.settimeout(self._timeout)
            self._socket.sendall(packed)
            self._socket.settimeout(None)
        else:
            self._socket.sendall(packed)

    def receive(self) -> None:
        """Wait for more bytes. Raises redis-py's ConnectionError if the server closed the connection, or OSError.

        TimeoutError and BlockingIOError, both OSErrors, mean that it took too long.
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
        """Interrupt a thread that waits for a reply; it sees a broken connection and closes it."""
        sock = self._connection._sock  # redis-py's own `disconnect` would drop it while that thread uses it
        if isinstance(sock, socket.socket):
            with suppress(OSError):  # it is broken already
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # SSLSocket's own also drops the TLS session


def _use_kernel_timeout(sock: socket.socket, timeout: float) -> None:
    """Let the kernel time the socket out; Python's own timeout costs another system call for each send and read.

    TLS needs Python's timeout, and the format of the option is that of Linux.
    """
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", *divmod(ceil(timeout * 1e6), 1_000_000)))
    sock.settimeout(None)


def _may_handle_signals() -> bool:
    """Return whether this is the main thread, in which Python handles signals.

    After a signal, Python restarts the interrupted call, and with it the kernel's timeout.
    """
    return threading.get_ident() == threading.main_thread().ident
