"""The end of a shard's log, read once for all its followers in this process.

A feed keeps the last few thousand entries. A follower that has fallen further behind reads the log at its own pace,
so that it slows no other follower and costs no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step, ask_all
from scratchbus.errors import LogGap, LogRewound, PositionLost, ScratchbusError
from scratchbus.eventlog.below_floor import Floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.entry_filter import EVERYTHING, EntryFilter
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.reader import read

MAX_ENTRIES = 4_096
"""The most entries that a feed keeps for followers that are a little behind."""

MAX_BYTES = 8 * 1024 * 1024
"""The most bytes of events it keeps."""


class Follower(Protocol):
    """What a feed calls when there are new entries."""

    def offer(self, items: Sequence[LogEntry]) -> None:
        """Note new entries, in whole batches and without a gap. Called by the reader of the tail, so be quick."""
        ...

    def resync(self) -> None:
        """Read again: the feed has started over at the end of a log that was trimmed or replaced."""
        ...


def cursor_at_end(log: Log, shard: int) -> Step[Cursor]:
    """Return a cursor after the last event of a shard's log."""
    keys = log.keys(shard)
    tail, origin = yield from ask_all(shard, [("GET", keys.tail), ("GET", keys.origin)])
    return Cursor(*Floor.parse(tail, origin, shard))


class Feed:
    """The end of one shard's log as this process has read it. Any follower may advance it.

    `trouble` is the error of the last attempt to read it, if it failed.
    """

    def __init__(self, log: Log, shard: int) -> None:
        self.log = log
        self.shard = shard
        self.lock = threading.Lock()
        self.trouble: ScratchbusError | None = None
        self._cursor: Cursor | None = None
        self._origin = ""
        self._items: list[LogEntry] = []
        self._bytes = 0
        self._before = 0  # the seq before the first item
        self._before_id = ""
        self._followers: list[Follower] = []

    @property
    def has_begun(self) -> bool:
        """Whether it knows the end of the log."""
        return self._cursor is not None

    @property
    def followers(self) -> int:
        """The number of followers."""
        return len(self._followers)

    def is_past(self, position: Position) -> bool:
        """Return whether it has read an event after this position."""
        return self._cursor is not None and self._cursor.position > position

    def join(self, follower: Follower) -> None:
        """Add a follower."""
        with self.lock:
            self._followers.append(follower)

    def leave(self, follower: Follower) -> None:
        """Remove a follower."""
        with self.lock:
            if follower in self._followers:
                self._followers.remove(follower)

    def resync(self) -> None:
        """Let all followers read again."""
        with self.lock:
            self._resync()

    def _resync(self) -> None:
        for follower in self._followers:
            follower.resync()

    def advance(self, block_ms: int) -> Step[None]:
        """Read the next entries, waiting up to `block_ms` for them, and offer them. Only one caller at a time."""
        if self._cursor is None:
            self._begin((yield from cursor_at_end(self.log, self.shard)))
            return
        try:
            chunks = yield from read(self.log, [self._cursor], block_ms)
        except (PositionLost, LogRewound, LogGap):  # each follower detects it from its own position
            self._cursor = None
            return
        if chunks:
            self._take([LogEntry(entry, self.shard) for entry in chunks[0][1]], self._cursor.origin)
            if self._cursor.position.seq != self._before + len(self._items):
                self._cursor = None  # some were erased in between: its items must be consecutive

    def after(self, cursor: Cursor) -> list[LogEntry] | None:
        """Return the entries after a cursor, None if the feed lacks the event there. Hold the lock for it."""
        at = cursor.position.seq - self._before
        is_time = cursor.position.ms and not cursor.position.seq  # only the log knows which event comes before
        if self._cursor is None or cursor.origin != self._origin or is_time:
            return None
        if not 0 <= at <= len(self._items):
            return None
        event_id = self._items[at - 1].id if at else self._before_id
        return self._items[at:] if cursor.event_id in ("", event_id) else None

    def _begin(self, cursor: Cursor) -> None:
        with self.lock:
            self._cursor, self._origin = cursor, cursor.origin
            self._before, self._before_id = cursor.position.seq, cursor.event_id
            self._items, self._bytes = [], 0
            self._resync()

    def _take(self, new: list[LogEntry], origin: str) -> None:
        with self.lock:
            self._origin = origin
            self._items += new
            self._bytes += sum(item.size for item in new)
            self._trim()
            for follower in self._followers:
                follower.offer(new)
            if b"erased" in [item.kind for item in new]:
                self._forget(new[-1])

    def _forget(self, last: LogEntry) -> None:
        """Drop all entries up to this one: some of them were erased."""
        self._before, self._before_id = last.position.seq, last.id
        self._items, self._bytes = [], 0

    def _trim(self) -> None:
        if len(self._items) <= MAX_ENTRIES and self._bytes <= MAX_BYTES:
            return
        drop = max(0, len(self._items) - MAX_ENTRIES // 2)
        size = sum(item.size for item in self._items[drop:])
        while size > MAX_BYTES // 2 and drop < len(self._items):
            size -= self._items[drop].size
            drop += 1
        self._before_id = self._items[drop - 1].id
        del self._items[:drop]
        self._bytes = size
        self._before += drop


@contextmanager
def joined(followers: Collection[tuple[Feed, Follower]]) -> Iterator[None]:
    """Pass the new entries of each of these feeds to its follower, inside."""
    for feed, follower in followers:
        feed.join(follower)
    try:
        yield
    finally:
        for feed, follower in followers:
            feed.leave(follower)


class TailChunk(NamedTuple):
    """The next entries, filtered for a follower, and whether the log ended there."""

    items: list[LogEntry]
    is_end: bool


class TailCursor:
    """A cursor of one follower in one shard's log, and a filter; it wakes the follower when an entry passes."""

    def __init__(self, feed: Feed, cursor: Cursor, entry_filter: EntryFilter, wake: Callable[[], object]) -> None:
        self.feed = feed
        self.cursor = cursor
        self._entry_filter = entry_filter
        self._wake = wake
        self._is_reading = False

    def take(self) -> Step[TailChunk]:
        """Return the wanted ones of the next entries, from the feed or else from the log.

        Raises PositionLost, LogRewound or LogGap.
        """
        with self.feed.lock:
            items = self.feed.after(self.cursor)
            if items is not None:
                if items:
                    self._move(items[-1])
                return TailChunk(self._wanted(items), not items)
            self._is_reading = True
        try:
            chunks = yield from read(self.feed.log, [self.cursor])
        finally:
            self._is_reading = False
        read_items = [LogEntry(entry, self.feed.shard) for entry in chunks[0][1]] if chunks else []
        return TailChunk(self._wanted(read_items), not chunks)

    def end(self) -> tuple[Position, str]:
        """Return the cursor's position and event id; the reader of the tail may be moving it."""
        with self.feed.lock:
            return self.cursor.position, self.cursor.event_id

    def offer(self, items: Sequence[LogEntry]) -> None:
        """Wake the follower for a wanted entry; move past the others when none is in between."""
        if self._is_reading or self.cursor.position.seq != items[0].position.seq - 1 or self._wanted(items):
            self._wake()
        else:
            self._move(items[-1])

    def resync(self) -> None:
        """Wake the follower."""
        self._wake()

    def _wanted(self, items: Sequence[LogEntry]) -> list[LogEntry]:
        if self._entry_filter == EVERYTHING:
            return list(items)
        return [item for item in items if self._entry_filter.wants(item.fields)]

    def _move(self, item: LogEntry) -> None:
        self.cursor.move_to(item.position, item.id)
        self.cursor.page = ""
