"""Walking over the log of one shard: whole batches behind a position, below the floor from the archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step, ask_all
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.below_floor import Floor, archived_after
from scratchbus.eventlog.codec import RawEntry, entry_position, is_batch_end

LONGEST_BATCH = 4_096
"""More entries than any batch has."""

CHUNK = 1_000
"""How many entries a reader takes at once; more when a batch is longer."""


class Chunk(NamedTuple):
    """The next entries of a log.

    `is_end`: the log had no more. `is_whole`: no events are missing before any of them. `origin` is that of the log.
    `replies` answer the commands that were sent along.
    """

    entries: list[RawEntry]
    is_end: bool
    is_whole: bool
    is_archived: bool
    origin: str
    replies: list[Any]


class LogReader:
    """Reads the log of one shard in order, whole batches at a time; `at` is the last event that it has read.

    Where events are missing it goes on behind them and says so: only its user knows what that means to it. `until` is
    the stream id, or the time in ms, of the last entry that is wanted.
    """

    def __init__(self, log: Log, at: Position, *, until: str | int = "+", chunk: int = CHUNK) -> None:
        self.at = at
        self._log = log
        self._keys = log.keys(at.shard)
        self._until = until
        self._chunk = chunk

    def read(self, *also: tuple[Any, ...]) -> Step[Chunk]:
        """Return the next entries and move behind them; send these commands along.

        Raises PositionLost for entries that were archived, where the archive cannot be read.
        """
        chunk = yield from self.peek(*also)
        if chunk.entries:
            self.at = entry_position(chunk.entries[-1], self.at.shard)
        return chunk

    def peek(self, *also: tuple[Any, ...]) -> Step[Chunk]:
        """Return the next entries and stay where it is."""
        count = self._chunk
        while True:
            chunk = yield from self._next(count, also)
            entries = chunk.entries
            end = whole_batches(entries, self._chunk)
            if end or not entries:
                return chunk._replace(entries=entries[:end], is_end=chunk.is_end and end == len(entries))
            if count >= LONGEST_BATCH:
                return chunk._replace(is_end=False)  # no such batch is ever written; do not stand still
            count = LONGEST_BATCH

    def _next(self, count: int, also: tuple[tuple[Any, ...], ...]) -> Step[Chunk]:
        """Return up to so many entries; the floor is read behind them, since it is raised before a log is trimmed."""
        at, keys = self.at, self._keys
        *replies, entries, row, origin = yield from ask_all(
            at.shard,
            [
                *also,
                ("XRANGE", keys.log, f"({at.stream_id}", self._until, "COUNT", count),
                ("GET", keys.floor),
                ("GET", keys.origin),
            ],
        )
        floor = Floor.parse(row, origin, at.shard)
        if is_contiguous(at, entries):
            return Chunk(entries, len(entries) < count, True, False, floor.origin, replies)
        if at < floor.position:
            stretch = yield from archived_after(self._log, floor, at, count)
            if stretch.entries:
                return Chunk(stretch.entries, False, is_contiguous(at, stretch.entries), True, floor.origin, replies)
        return Chunk(entries, len(entries) < count, not entries, False, floor.origin, replies)


def is_contiguous(at: Position, entries: Sequence[RawEntry]) -> bool:
    """Return whether entries follow a position and each other without a gap."""
    return bool(entries) and entry_position(entries[-1], 0).seq == at.seq + len(entries)


def whole_batches(entries: Sequence[RawEntry], most: int) -> int:
    """Return how many entries, at most so many, the last whole batch ends with; more if the first batch is longer."""
    end = next((at for at in range(min(most, len(entries)), 0, -1) if is_batch_end(entries[at - 1])), 0)
    return end or next((at for at, entry in enumerate(entries, 1) if is_batch_end(entry)), 0)
