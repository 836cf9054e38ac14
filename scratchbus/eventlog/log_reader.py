"""Read the log of one shard: whole batches after a position, from the archive below the floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from scratchbus.domain.position import START, Position
from scratchbus.engine.steps import Call, Collect, Send, Sent, Step
from scratchbus.eventlog.archive_protocol import EVENTS_LOST
from scratchbus.eventlog.below_floor import Floor, archived_after
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.foreign import appended
from scratchbus.eventlog.gaps import count_erased
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.raw_entries import RawEntry, entry_position, index_in_batch, is_batch_end
from scratchbus.telemetry.logs import stderr_logger

MAX_BATCH = 4_096
"""More entries than any batch has."""

CHUNK = 1_000
"""How many entries a reader takes at once; more if a batch is longer."""

logger = stderr_logger()


class Chunk(NamedTuple):
    """The next entries of a log.

    `is_end`: the log has no more. `is_whole`: no events are missing before any of them. `origin` is the log's origin.
    `replies` are the replies to the additional commands.
    """

    entries: list[RawEntry]
    is_end: bool
    is_whole: bool
    is_archived: bool
    origin: str
    replies: list[Any]


class LogReader:
    """Reads the log of one shard in order, whole batches at a time; `at` is the last event read.

    `floor` is the log's floor, set by the first read.

    Where events are missing it continues after them and reports that; the caller decides what it means. With
    `skips_lost` it also does so where the archive is not set, damaged or of another log; one that is unavailable may
    be read later. `until` is the stream id, or the time in ms, of the last wanted entry.
    """

    def __init__(
        self, log: Log, at: Position, *, until: str | int = "+", chunk: int = CHUNK, skips_lost: bool = False
    ) -> None:
        self.at = at
        self.floor = Floor(START, "", "")
        self._log = log
        self.keys = log.keys(at.shard)
        self._until = until
        self._chunk = chunk
        self._skips_lost = skips_lost
        self._next_read: Sent | None = None

    def read_ahead(self, *extra: tuple[Any, ...]) -> Step[None]:
        """Start reading what `read`, given the same commands, will return."""
        self._next_read = yield Send(Call(self.at.shard, self._commands(self._chunk, extra)))

    def read(self, *extra: tuple[Any, ...]) -> Step[Chunk]:
        """Return the next entries and move past them; send these commands along.

        Raises PositionLost for archived entries if the archive cannot be read.
        """
        for count in (self._chunk, MAX_BATCH):
            chunk = yield from self._next(count, extra)
            entries, end = chunk.entries, whole_batches(chunk.entries, self._chunk)
            if end or not entries:
                break
        is_end = chunk.is_end and end == len(entries)
        if entries:
            end = end or len(entries)  # no batch is this long; keep moving
            self.at = entry_position(entries[end - 1], self.at.shard)
        return chunk._replace(entries=entries[:end], is_end=is_end)

    def _next(self, count: int, extra: tuple[tuple[Any, ...], ...]) -> Step[Chunk]:
        """Return up to so many entries.

        The tail and the floor are read after the entries: so no event among them is behind the tail, and the floor is
        raised before a log is trimmed.
        """
        at, keys = self.at, self.keys
        commands = self._commands(count, extra)
        next_read, self._next_read = self._next_read, None
        request = (
            Collect(next_read)
            if next_read is not None and next_read.call.commands == commands
            else Call(at.shard, commands)
        )
        *replies, rows, tail, row, origin = yield request
        entries = appended(rows, tail, origin, at.shard)
        floor = self.floor = Floor.parse(row, origin, at.shard)
        archived: list[RawEntry] = []
        if at < floor.position and not (yield from is_complete(keys, at, entries)):
            try:
                archived = (yield from archived_after(self._log, floor, at, count)).entries
            except EVENTS_LOST as lost:
                if not self._skips_lost:
                    raise
                logger.warning(
                    "the archive cannot be read; continuing after its events", shard=at.shard, reason=str(lost)
                )
        found = archived or entries
        is_whole = not found or _missing(at, found) == 0
        is_end = not archived and len(entries) < count
        return Chunk(found, is_end, is_whole, bool(archived), floor.origin, replies)

    def _commands(self, count: int, extra: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
        at, keys = self.at, self.keys
        return (
            *extra,
            ("XRANGE", keys.log, f"({at.stream_id}", self._until, "COUNT", count),
            ("GET", keys.tail),
            ("GET", keys.floor),
            ("GET", keys.origin),
        )


def is_complete(keys: ShardKeys, at: Position, entries: Sequence[RawEntry]) -> Step[bool]:
    """Return whether entries follow a position and each other with no events missing except erased ones."""
    if not entries:
        return False
    missing = _missing(at, entries)
    return not missing or missing == (yield from count_erased(keys, at.seq, at.seq + missing + len(entries)))


def _missing(at: Position, entries: Sequence[RawEntry]) -> int:
    """Return how many events are missing between a position and the last of these entries."""
    return entry_position(entries[-1], 0).seq - at.seq - len(entries)


def whole_batches(entries: Sequence[RawEntry], limit: int) -> int:
    """Return how many entries, at most `limit`, end with a whole batch; more if the first batch is longer.

    An entry says where its batch begins; the entry before that is checked next, so long batches cost no more.
    """
    at = min(limit, len(entries))
    while at > 0:
        index, total = index_in_batch(entries[at - 1])
        if index == total:
            return at
        at -= max(1, index)  # after an erasure this goes back too far, to where another batch may end
    return next((at for at, entry in enumerate(entries, 1) if is_batch_end(entry)), 0)
