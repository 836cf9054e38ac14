"""Standard input and output, or their replacements, on the event loop.

The event loop itself reads and writes them wherever that cannot block it: passing a message to or from a thread takes
longer than everything else in most calls.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import sys
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

_CHUNK: Final = 65536
_MAX_READ_AHEAD: Final = 16  # chunks read ahead of processing


class InputPipe:
    """Chunks read from a descriptor, some of them ahead; the last one is empty."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_MAX_READ_AHEAD)
        self._is_paused = False
        self._take_directly: Callable[[bytes], bool] | None = None
        try:
            self._watch()
        except OSError:  # such as a file, which no loop waits for
            threading.Thread(target=self._read_all, name="stdin", daemon=True).start()

    async def next(self, take: Callable[[bytes], bool] | None = None) -> bytes:
        """Return the next chunk.

        While this waits, `take` is called with each chunk as soon as it is there, and returns whether it has taken it:
        to wake a task takes a turn of the loop.
        """
        self._take_directly = take
        try:
            chunk = await self._chunks.get()
        finally:
            self._take_directly = None
        self._room.release()
        if self._is_paused:
            self._is_paused = False
            self._watch()
        return chunk

    def _watch(self) -> None:
        """Have the loop call `_read` whenever there are bytes.

        uvloop makes the descriptor non-blocking, and with it those that share its socket or terminal, such as the
        output; so that is undone.
        """
        is_blocking = os.get_blocking(self._descriptor)
        self._loop.add_reader(self._descriptor, self._read)
        os.set_blocking(self._descriptor, is_blocking)

    def _read(self) -> None:
        """Read the available bytes."""
        self._is_paused = not self._room.acquire(blocking=False)
        chunk = b"" if self._is_paused else _chunk(self._descriptor)
        if not chunk:
            self._loop.remove_reader(self._descriptor)
        if self._is_paused:
            return
        if chunk and self._take_directly is not None and self._chunks.empty() and self._take_directly(chunk):
            self._room.release()
        else:
            self._chunks.put_nowait(chunk)

    def _read_all(self) -> None:
        """Read until the end, in a thread."""
        chunk = b"more"
        while chunk:
            self._room.acquire()
            chunk = _chunk(self._descriptor)
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:  # the loop is closed
                return


class OutputPipe:
    """A descriptor to which tasks write in turn. Writes are discarded once its reader has gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        """Write everything; wait while the reader does not read."""
        with suppress(BrokenPipeError):
            if not self._lock.locked() and _has_room(self._descriptor, len(data)):
                os.write(self._descriptor, data)
                return
            await self._lock.acquire()
            writing = asyncio.ensure_future(
                anyio.to_thread.run_sync(_write, self._descriptor, data, abandon_on_cancel=True)
            )
            writing.add_done_callback(self._written)
            await asyncio.shield(writing)  # its thread goes on after a cancellation: nobody else may write meanwhile

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._lock.release()
        if not writing.cancelled():
            writing.exception()  # nobody else takes it after a cancellation


def _chunk(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""


def _has_room(descriptor: int, size: int) -> bool:
    """Return whether so many bytes can be written whole without waiting; if unsure, as with O_NONBLOCK, it is not."""
    if not os.get_blocking(descriptor):
        return False
    if size > select.PIPE_BUF:
        return size <= _capacity(descriptor) and not _unread(descriptor)
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    return ready.poll(0) == [(descriptor, select.POLLOUT)]


def _capacity(descriptor: int) -> int:
    """Return how many bytes an empty pipe takes, 0 if it is none or the system does not say."""
    if sys.platform == "linux":
        with suppress(OSError):
            return fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    return 0


def _unread(descriptor: int) -> int:
    """Return how many bytes in a pipe have not been read."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


def _write(descriptor: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        try:
            remaining = remaining[os.write(descriptor, remaining) :]
        except BlockingIOError:  # the client's own file may be set so
            ready = select.poll()
            ready.register(descriptor, select.POLLOUT)
            ready.poll()
