"""The end of a connection whose client is still sending.

The kernel resets a connection that is closed with unread bytes, and the client may lose the answer. So the server first
closes its own half, and discards what arrives until the client closes too (RFC 9112, 9.6).
"""

from __future__ import annotations

from asyncio import Transport, get_running_loop
from contextlib import suppress
from typing import Any, Final

IDLE_SECONDS: Final = 2.0
"""The seconds without a byte of the client after which its connection is closed."""

TOTAL_SECONDS: Final = 10.0
"""The most seconds for which what a client sends is discarded."""

MAX_BYTES: Final = 32 * 2**20
"""The most bytes of a client that are discarded."""


class LingeringTransport:
    """A transport that lingers when it is closed in the middle of a body; its user sets `in_body`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.write = transport.write
        self.in_body = False
        self._may_linger = True
        self._is_lingering = False
        self._discarded = 0
        self._end = self._last = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether it is closed or lingers: nothing more may be written, and what arrives is to be discarded."""
        return self._is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """Linger in the middle of a body, else close."""
        if self.in_body:
            self.linger()
        elif not self._is_lingering:
            self._transport.close()

    def linger(self) -> None:
        """Close the server's half, and the connection once the client has closed or at a limit.

        TLS cannot close one half; its clients know the end of an answer from its length.
        """
        if self.is_closing():
            return
        if not self._may_linger:
            self._transport.close()
            return
        self._is_lingering = True
        if self._transport.can_write_eof():
            with suppress(OSError):  # the client has reset the connection
                self._transport.write_eof()
        self._transport.resume_reading()
        self._last = get_running_loop().time()
        self._end = self._last + TOTAL_SECONDS
        self._check()

    def discard(self, data: bytes) -> None:
        """Count what has arrived while it lingers."""
        self._last = get_running_loop().time()
        self._discarded += len(data)
        if self._discarded > MAX_BYTES:
            self._transport.close()

    def stop_lingering(self) -> None:
        """Close it at once if it lingers, and whenever it is closed from now on."""
        self._may_linger = False
        if self._is_lingering:
            self._transport.close()

    def _check(self) -> None:
        if self._transport.is_closing():
            return
        loop = get_running_loop()
        end = min(self._end, self._last + IDLE_SECONDS)
        if loop.time() < end:
            loop.call_at(end, self._check)
        else:
            self._transport.close()
