"""An entry of the log, shared by all followers in this process."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from scratchbus.domain.frozen import freeze
from scratchbus.domain.position import Position
from scratchbus.errors import CodeTooOld
from scratchbus.eventlog.codec import AT_ONCE, Poison, decode_bodies, decode_items
from scratchbus.eventlog.raw_entries import RawEntry, entry_body, entry_fields, entry_id, entry_kind, entry_position

if TYPE_CHECKING:
    from scratchbus.domain.events import AnyEvent


class _Decoded:
    """The bodies of entries that were decoded together, and their events, made on first use."""

    def __init__(self, entries: list[RawEntry], shard: int) -> None:
        self._entries, self._shard = entries, shard
        self._decoded = decode_bodies(entries, shard)
        self._items: list[tuple[RawEntry, AnyEvent | Poison]] | None = None
        self.are_events = [not isinstance(body, Exception) for body in self._decoded.bodies]

    def problem(self, at: int) -> Poison | None:
        """Return why an entry is not an event, None if it is one. Raises CodeTooOld."""
        body = self._decoded.bodies[at]
        if isinstance(body, CodeTooOld):
            raise body.with_traceback(None)
        return body if isinstance(body, Poison) else None

    def event(self, at: int) -> AnyEvent | Poison:
        """Return the event of an entry for which `problem` has returned None."""
        if self._items is None:
            unread = Poison({}, "needs newer code")
            bodies = [unread if isinstance(body, CodeTooOld) else body for body in self._decoded.bodies]
            self._items = decode_items(self._entries, self._shard, self._decoded._replace(bodies=bodies))
        return self._items[at][1]


class LogEntry:
    """One entry of the log; it is decoded once for all followers, on first use, and so is its event.

    `is_event` is set when it is decoded; `problem` gives the reason if it is not one.
    """

    __slots__ = ("_at", "_decoded", "_event", "_fields", "_id", "_position", "entry", "is_event", "shard")

    def __init__(self, entry: RawEntry, shard: int) -> None:
        self.entry = entry
        self.shard = shard
        self._position: Position | None = None
        self._id: str | None = None
        self._fields: dict[bytes, bytes] | None = None
        self._decoded: _Decoded | None = None
        self._event: AnyEvent | Poison | None = None
        self._at = 0
        self.is_event = False

    @staticmethod
    def decode(items: Iterable[LogEntry]) -> None:
        """Decode the first hundred entries of the first one's shard together, which is much cheaper than one by one.

        Call this before reading most of their events.
        """
        new = [item for item in islice(items, AT_ONCE) if item._decoded is None and item._event is None]
        if new:
            new = [item for item in new if item.shard == new[0].shard]
            decoded = _Decoded([item.entry for item in new], new[0].shard)
            for at, (item, is_event) in enumerate(zip(new, decoded.are_events, strict=True)):
                item._at, item._decoded, item.is_event = at, decoded, is_event  # in this order: other threads may look

    @property
    def position(self) -> Position:
        """Its position."""
        if self._position is None:
            self._position = entry_position(self.entry, self.shard)
        return self._position

    @property
    def fields(self) -> dict[bytes, bytes]:
        """Its fields."""
        if self._fields is None:
            self._fields = entry_fields(self.entry)
        return self._fields

    @property
    def problem(self) -> Poison | None:
        """Why it is not an event, None if it is one. Raises CodeTooOld."""
        decoded, at = self._decoding()
        return decoded.problem(at)

    @property
    def event(self) -> AnyEvent | Poison:
        """Its event, or the reason why it is not one. Raises CodeTooOld."""
        if self._event is not None:
            return self._event
        if not self.is_event and (problem := self.problem) is not None:
            return problem
        decoded, at = self._decoding()
        event = decoded.event(at)
        self._event = event = event if isinstance(event, Poison) else freeze(event)
        self._decoded = None  # keeping this entry must not keep those that were decoded with it
        return event

    def _decoding(self) -> tuple[_Decoded, int]:
        """Return the entries' common decoding, and this entry's index there."""
        decoded, at = self._decoded, self._at
        if decoded is None:
            decoded, at = _Decoded([self.entry], self.shard), 0
            self._at, self._decoded, self.is_event = at, decoded, decoded.are_events[at]
        return decoded, at

    @property
    def id(self) -> str:
        """Its event's id."""
        if self._id is None:
            self._id = entry_id(self.entry)
        return self._id

    @property
    def kind(self) -> bytes:
        """The kind of its event."""
        return entry_kind(self.entry)

    @property
    def size(self) -> int:
        """The size of its event in bytes."""
        return len(entry_body(self.entry))
