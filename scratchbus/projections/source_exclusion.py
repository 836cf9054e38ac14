"""The events of a log that remain without some sources.

Left out are the events of these sources, all events about observations that do not exist without them, events that name
one left out as evidence or cause, reviews because one was refuted, and those by which the append script made room for
one left out.
What others would have done instead is unknown: a sighting that was counted on a left-out observation is left out too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence

from scratchbus.domain.event import Event
from scratchbus.domain.page_events import Added, Repeated, StatusChanged
from scratchbus.domain.position import Position
from scratchbus.errors import InvalidPosition

_MADE_ROOM = re.compile(r"(.*)\.(?:k|l|[xd]\d+)", re.DOTALL)
"""The id of an event that the append script added to make room for another: the other's id and a suffix."""


class SourceExclusion:
    """Divides the events of a bus, in order of time, into those that are left out and those that are kept."""

    def __init__(self, sources: Collection[str]) -> None:
        self.sources = frozenset(sources)
        self._gone: set[str] = set()
        self._left_out: defaultdict[int, bytearray] = defaultdict(bytearray)  # by shard, one bit for each seq

    def keep(self, batch: Sequence[Event]) -> list[Event]:
        """Return the events of a whole batch that are kept, and remember the others."""
        excluded = {event.id for event in batch if self._is_left_out(event)}
        kept = []
        for event in batch:
            displacement = _MADE_ROOM.fullmatch(event.id)
            if event.id in excluded or (displacement is not None and displacement[1] in excluded):
                self._leave_out(event)
            else:
                kept.append(event)
        return kept

    def has_left_out(self, position: Position) -> bool:
        """Return whether the event at a position was left out."""
        byte, bit = divmod(position.seq, 8)
        bitmap = self._left_out.get(position.shard, b"")
        return byte < len(bitmap) and bool(bitmap[byte] >> bit & 1)

    def _is_left_out(self, event: Event) -> bool:
        is_left_out = (
            event.by in self.sources
            or event.subject in self._gone
            or (event.cause is not None and self._has_left_out_cause(event.cause))
            or (isinstance(event, Added) and event.source in self.sources)
            or (isinstance(event, Added | Repeated) and not self._gone.isdisjoint(event.evidence))
            or (isinstance(event, StatusChanged) and not self._gone.isdisjoint(event.chain))
        )
        if is_left_out and isinstance(event, Added):
            self._gone.add(event.subject)
        return is_left_out

    def _has_left_out_cause(self, cause: str) -> bool:
        try:
            return self.has_left_out(Position.parse(cause))
        except InvalidPosition:
            return False  # a cause in another system

    def _leave_out(self, event: Event) -> None:
        byte, bit = divmod(event.seq, 8)
        bitmap = self._left_out[event.shard]
        if byte >= len(bitmap):
            bitmap.extend(bytes(byte + 1024 - len(bitmap)))
        bitmap[byte] |= 1 << bit
