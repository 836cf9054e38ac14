"""The reader of the log of one shard: whole batches behind a position, below the floor from the archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from scratchbus.domain.position import START, Position
from scratchbus.engine.steps import Call, Collect, Send, Sent, Step
from scratchbus.errors import PositionLost
from scratchbus.eventlog.below_floor import Floor, archived_after
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.foreign import appended
from scratchbus.eventlog.gaps import count_erased
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.raw_entries import RawEntry, batch_place, entry_position, is_batch_end
from scratchbus.telemetry.logs import stderr_logger

LONGEST_BATCH = 4_096
"""More entries than any batch has."""

CHUNK = 1_000
"""How many entries a reader takes at once; more when a batch is longer."""

logger = stderr_logger()


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

    `floor` is that of the log, once something was read.

    Where events are missing it goes on behind them and says so: only its user knows what that means to it. With
    `skips_lost` that is also done where the archive cannot be read. `until` is the stream id, or the time in ms, of the
    last entry that is wanted.
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
        self._ahead: Sent | None = None

    def read_ahead(self, *also: tuple[Any, ...]) -> Step[None]:
        """Have the engine read what `read`, given the same commands, returns next."""
        self._ahead = yield Send(Call(self.at.shard, self._commands(self._chunk, also)))

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
        """Return up to so many entries.

        Tail and floor are read after them: the tail so that no event among them is behind it, and the floor since it is
        raised before a log is trimmed.
        """
        at, keys = self.at, self.keys
        commands = self._commands(count, also)
        ahead, self._ahead = self._ahead, None
        request = Collect(ahead) if ahead is not None and ahead.call.commands == commands else Call(at.shard, commands)
        *replies, read, tail, row, origin = yield request
        entries = appended(read, tail, origin, at.shard)
        floor = self.floor = Floor.parse(row, origin, at.shard)
        archived: list[RawEntry] = []
        if at < floor.position and not (yield from is_complete(keys, at, entries)):
            try:
                archived = (yield from archived_after(self._log, floor, at, count)).entries
            except PositionLost as lost:
                if not self._skips_lost:
                    raise
                logger.warning("going on behind what was archived", shard=at.shard, reason=str(lost))
        found = archived or entries
        is_whole = not found or _missing(at, found) == 0
        is_end = not archived and len(entries) < count
        return Chunk(found, is_end, is_whole, bool(archived), floor.origin, replies)

    def _commands(self, count: int, also: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
        at, keys = self.at, self.keys
        return (
            *also,
            ("XRANGE", keys.log, f"({at.stream_id}", self._until, "COUNT", count),
            ("GET", keys.tail),
            ("GET", keys.floor),
            ("GET", keys.origin),
        )


def is_complete(keys: ShardKeys, at: Position, entries: Sequence[RawEntry]) -> Step[bool]:
    """Return whether entries follow a position and each other with nothing missing but what was erased."""
    if not entries:
        return False
    missing = _missing(at, entries)
    return not missing or missing == (yield from count_erased(keys, at.seq, at.seq + missing + len(entries)))


def _missing(at: Position, entries: Sequence[RawEntry]) -> int:
    """Return how many events are missing between a position and the last of these entries."""
    return entry_position(entries[-1], 0).seq - at.seq - len(entries)


def whole_batches(entries: Sequence[RawEntry], most: int) -> int:
    """Return how many entries, at most so many, a whole batch ends with; more if the first batch is longer.

    An entry says where its batch begins; what is before that is looked at next, so that long batches cost no more.
    """
    at = min(most, len(entries))
    while at > 0:
        index, total = batch_place(entries[at - 1]) or (1, 1)
        if index == total:
            return at
        at -= max(1, index)  # where some were erased, this goes back too far, to where another batch may end
    return next((at for at, entry in enumerate(entries, 1) if is_batch_end(entry)), 0)
