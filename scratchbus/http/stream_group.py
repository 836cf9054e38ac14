"""A group of streams with the same filters, and the last frames sent to them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from scratchbus.http.frames import EventFilter, Vector

CHUNK: Final = 32 * 1024
"""The most bytes sent at once, unless one event has more."""


class _Chunk(NamedTuple):
    frames: bytes
    end: Vector  # the position after them


class Group:
    """All streams with the same filters, and their last frames, in chunks; `first` is the number of the oldest one."""

    def __init__(self, event_filter: EventFilter) -> None:
        self.event_filter = event_filter
        self.streams: set[EventStream] = set()
        self.first = 0
        self._chunks: deque[_Chunk] = deque()
        self._size = 0
        self._new: list[bytes] = []

    @property
    def next(self) -> int:
        """The number of the next chunk."""
        return self.first + len(self._chunks)

    def add(self, frames: bytes) -> None:
        """Add frames, to be sent by the next flush."""
        self._new.append(frames)

    def flush(self, end: Vector, limit: int) -> None:
        """Pass the new frames to all streams as a chunk; drop the oldest chunks beyond the limit, in bytes."""
        if not self._new:
            return
        chunk = _Chunk(b"".join(self._new), end)
        self._new.clear()
        self._chunks.append(chunk)
        self._size += len(chunk.frames)
        while self._size > limit and len(self._chunks) > 1:
            self._size -= len(self._chunks.popleft().frames)
            self.first += 1
        for stream in self.streams:
            stream.woken.set()

    def take(self, number: int) -> tuple[bytes, int, Vector]:
        """Return the frames from a chunk on, about `CHUNK` bytes at most, and the number and position after."""
        found: list[bytes] = []
        size, at, end = 0, number, self._chunks[number - self.first].end
        while at < self.next:
            chunk = self._chunks[at - self.first]
            if found and size + len(chunk.frames) > CHUNK:
                break
            found.append(chunk.frames)
            size, at, end = size + len(chunk.frames), at + 1, chunk.end
        return b"".join(found) if len(found) > 1 else found[0], at, end


class EventStream:
    """One client's stream. `position` is where it is in the log, `at` the number of its next chunk in the group."""

    __slots__ = ("at", "blocked_since", "end", "group", "is_over", "is_valid", "position", "woken")

    def __init__(self, position: Vector, is_valid: Callable[[], bool], end: Callable[[], object]) -> None:
        self.position = position
        self.is_valid = is_valid
        self.end = end
        self.at = 0
        self.group: Group | None = None
        self.woken = asyncio.Event()
        self.is_over = False
        self.blocked_since: float | None = None

    def close(self) -> None:
        """Make the stream end."""
        self.is_over = True
        self.woken.set()
