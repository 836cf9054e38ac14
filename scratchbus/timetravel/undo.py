"""A page in the recent past: the current page with later events undone.

The cost grows with the number of later events. Everything else is read on demand, and each read also undoes events
appended meanwhile.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.chains import walk_chains
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.raw_entries import entry_fields, text_of
from scratchbus.eventlog.reader import CHUNK, read
from scratchbus.projections.subjects import IN_PLACE
from scratchbus.timetravel.lazy_page import read_closed

_LINK = re.compile(rb"(\d{1,15}-\d{1,15})?")


class Known(NamedTuple):
    """The undone events: their end, and each observation before them."""

    cursor: Cursor
    states: Mapping[str, Observation | None]


@dataclass(slots=True)
class UndoneEvents:
    """The events of a page since a moment, undone for as long as its bus is open; see `PastState`."""

    ms: int
    known: Known

    def undo(self, log: Log, page: str, tail: Position) -> Step[Mapping[str, Observation | None]]:
        """See `PastState`."""
        known = self.known
        if known.cursor.position < tail:
            later = yield from changed_since(log, page, known.cursor, tail)
            added = {id: before for id, before in later.before.items() if id not in known.states}
            states = yield from states_before(log, page, added)
            if not later.is_linked:
                unknown = [id for id, before in added.items() if not before]
                found = yield from read_closed(log, page, known.cursor.position, unknown)
                states |= {id: found.get(id) for id in unknown}
            self.known = known = Known(later.cursor, {**known.states, **states})  # in one step, for other readers
        return known.states


class Changed(NamedTuple):
    """The subjects with events after a cursor, each with the stream id of its previous event ("": none); a new cursor.

    `events` counts the page's events. Without `is_linked`, some were not written by the append script and do not record
    their predecessors.
    """

    cursor: Cursor
    before: dict[str, str]
    events: int
    is_linked: bool


def changed_since(log: Log, page: str, cursor: Cursor, tail: Position, max_events: int = sys.maxsize) -> Step[Changed]:
    """Read the events of a page after a cursor, at least up to this end of the log, or to more than `max_events`."""
    is_far = tail.seq - cursor.position.seq > CHUNK
    cursor = replace(cursor, page=page if is_far else "")
    name, before, events, is_linked = page.encode(), dict[str, str](), 0, True
    while cursor.position < tail and events <= max_events and (chunks := (yield from read(log, [cursor]))):
        for _, entries in chunks:
            for entry in entries:
                fields = entry_fields(entry)
                if fields.get(b"page") == name:
                    events += 1
                    is_linked = is_linked and _LINK.fullmatch(fields.get(b"prev", b"-")) is not None
                    subject, previous = (text_of(fields.get(key, b"")) for key in (b"subject", b"prev"))
                    before.setdefault(subject, previous)
    return Changed(cursor, before, events, is_linked)


def states_before(log: Log, page: str, before: Mapping[str, str]) -> Step[dict[str, Observation | None]]:
    """Return each observation after the event with this stream id; None without one."""
    chains = yield from walk_chains(log, log.shard(page), filter(None, before.values()))
    states: dict[str, Observation | None] = dict.fromkeys(before)
    for id, at in before.items():
        for event in chains.get(at, ()):
            states[id], _ = IN_PLACE.fold(states[id], event)
    return states
