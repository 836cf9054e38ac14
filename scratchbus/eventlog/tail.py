"""The end of a shard's log, read once for all who follow it in this process.

A feed keeps the last few thousand entries. Whoever has fallen behind that reads the log at its own pace, so a slow
follower slows nobody, and costs no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from scratchbus.domain.events import Event
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step, ask_all
from scratchbus.errors import LogGap, LogRewound, PositionLost, ScratchbusError
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.below_floor import Floor
from scratchbus.eventlog.codec import Poison, RawEntry, decode_item, entry_fields, entry_position, text_of
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.reader import Narrow, read

KEPT = 4_096
"""The most entries a feed keeps for those who are a little behind."""

KEPT_BYTES = 8 * 1024 * 1024
"""The most bytes of events it keeps."""


class Item:
    """One entry of the log; it is decoded once for all, when the first one asks."""

    __slots__ = ("_event", "_fields", "entry", "position")

    def __init__(self, entry: RawEntry, shard: int) -> None:
        self.entry = entry
        self.position = entry_position(entry, shard)
        self._fields: dict[bytes, bytes] | None = None
        self._event: Event | Poison | None = None

    @property
    def fields(self) -> dict[bytes, bytes]:
        """Its fields."""
        if self._fields is None:
            self._fields = entry_fields(self.entry)
        return self._fields

    @property
    def event(self) -> Event | Poison:
        """Its event, or why it is none. Raises CodeTooOld."""
        if self._event is None:
            self._event = decode_item(self.entry, self.position.shard)
        return self._event

    @property
    def id(self) -> str:
        """Its event's id."""
        return text_of(self.fields.get(b"id", b""))

    @property
    def size(self) -> int:
        """How many bytes its event has."""
        return len(self.fields.get(b"event", b""))

    def place(self, cursor: Cursor) -> None:
        """Put a cursor behind this entry."""
        cursor.position = self.position
        cursor.event_id = self.id


class Follower(Protocol):
    """Who is told what a feed has read."""

    def offer(self, items: Sequence[Item]) -> None:
        """Take note of what is new, in whole batches and without a gap; called by whoever read it, so be quick."""
        ...

    def stir(self) -> None:
        """Look again: the feed has begun anew, behind a log that was trimmed or replaced."""
        ...


def end_of(log: Log, shard: int) -> Step[Cursor]:
    """Return the cursor that stands behind the last event of a shard's log."""
    keys = log.keys(shard)
    tail, origin = yield from ask_all(shard, [("GET", keys.tail), ("GET", keys.origin)])
    return Cursor(*Floor.parse(tail, origin, shard))


class Feed:
    """The end of one shard's log as this process has read it. Whoever follows it may make it advance.

    `trouble` is why it could not be read just now, if so.
    """

    def __init__(self, log: Log, shard: int) -> None:
        self.log = log
        self.shard = shard
        self.lock = threading.Lock()
        self.trouble: ScratchbusError | None = None
        self._cursor: Cursor | None = None
        self._origin = ""
        self._items: list[Item] = []
        self._bytes = 0
        self._before = 0  # the seq before the first item
        self._before_id = ""
        self._followers: list[Follower] = []

    @property
    def has_begun(self) -> bool:
        """Whether it has found the end of the log."""
        return self._cursor is not None

    @property
    def followers(self) -> int:
        """How many are told what it reads."""
        return len(self._followers)

    def is_past(self, position: Position) -> bool:
        """Say whether it has read an event behind this position."""
        return self._cursor is not None and self._cursor.position > position

    def join(self, follower: Follower) -> None:
        """Tell this one too what is new."""
        with self.lock:
            self._followers.append(follower)

    def leave(self, follower: Follower) -> None:
        """Tell this one no more."""
        with self.lock:
            if follower in self._followers:
                self._followers.remove(follower)

    def stir(self) -> None:
        """Have all who follow look again."""
        with self.lock:
            self._stir()

    def _stir(self) -> None:
        for follower in self._followers:
            follower.stir()

    def advance(self, block_ms: int) -> Step[None]:
        """Read what follows, waiting up to `block_ms` for it, and offer it. Only one may do so at a time."""
        if self._cursor is None:
            self._begin((yield from end_of(self.log, self.shard)))
            return
        try:
            chunks = yield from read(self.log, [self._cursor], block_ms)
        except (PositionLost, LogRewound, LogGap):  # each follower finds out by itself, from where it stands
            self._cursor = None
            return
        if chunks:
            self._take([Item(entry, self.shard) for entry in chunks[0][1]], self._cursor.origin)
            if self._cursor.position.seq != self._before + len(self._items):
                self._cursor = None  # some were erased in between: its items have to stand one after the other

    def after(self, cursor: Cursor) -> list[Item] | None:
        """Return the items behind a cursor; None when the feed does not have the event there. Call it with the lock."""
        at = cursor.position.seq - self._before
        is_time = cursor.position.ms and not cursor.position.seq  # which event that is before, only the log can tell
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
            self._stir()

    def _take(self, new: list[Item], origin: str) -> None:
        with self.lock:
            self._origin = origin
            self._items += new
            self._bytes += sum(item.size for item in new)
            self._trim()
            for follower in self._followers:
                follower.offer(new)
            if any(item.fields.get(b"kind") == b"erased" for item in new):
                self._forget(new[-1])

    def _forget(self, last: Item) -> None:
        """Keep nothing of what is before an item, which was erased in part."""
        self._before, self._before_id = last.position.seq, last.id
        self._items, self._bytes = [], 0

    def _trim(self) -> None:
        if len(self._items) <= KEPT and self._bytes <= KEPT_BYTES:
            return
        drop = max(0, len(self._items) - KEPT // 2)
        kept = sum(item.size for item in self._items[drop:])
        while kept > KEPT_BYTES // 2 and drop < len(self._items):
            kept -= self._items[drop].size
            drop += 1
        self._before_id = self._items[drop - 1].id
        del self._items[:drop]
        self._bytes = kept
        self._before += drop


class Taken(NamedTuple):
    """What is wanted of a stretch of the log, and whether the log ended there."""

    items: list[Item]
    is_end: bool


class Place:
    """Where one follower stands in one shard's log, and what it wants of it. It wakes the follower when that comes."""

    def __init__(self, feed: Feed, cursor: Cursor, narrow: Narrow, wake: Callable[[], object]) -> None:
        self.feed = feed
        self.cursor = cursor
        self._narrow = narrow
        self._wake = wake
        self._is_reading = False

    def take(self) -> Step[Taken]:
        """Return what is wanted of the next stretch, from the feed or else from the log.

        Raises PositionLost, LogRewound or LogGap.
        """
        with self.feed.lock:
            items = self.feed.after(self.cursor)
            if items is not None:
                if items:
                    self._move(items[-1])
                return Taken(self._wanted(items), not items)
            self._is_reading = True
        try:
            chunks = yield from read(self.feed.log, [self.cursor])
        finally:
            self._is_reading = False
        read_items = [Item(entry, self.feed.shard) for entry in chunks[0][1]] if chunks else []
        return Taken(self._wanted(read_items), not chunks)

    def offer(self, items: Sequence[Item]) -> None:
        """Wake the follower for what it wants; go past the rest when nothing else is in between."""
        if self._is_reading or self.cursor.position.seq != items[0].position.seq - 1 or self._wanted(items):
            self._wake()
        else:
            self._move(items[-1])

    def stir(self) -> None:
        """Wake the follower."""
        self._wake()

    def _wanted(self, items: Sequence[Item]) -> list[Item]:
        if self._narrow == Narrow():
            return list(items)
        return [item for item in items if self._narrow.wants(item.fields)]

    def _move(self, item: Item) -> None:
        item.place(self.cursor)
        self.cursor.page = ""
