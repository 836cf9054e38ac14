"""A page as it was a short time ago: the page as it is now, with the events since undone.

It costs as much as there are events since. Everything else is read on demand, and each read also undoes what was
appended meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.chains import walk_chains
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.raw_entries import entry_fields
from scratchbus.eventlog.reader import CHUNK, read
from scratchbus.projections.table import IN_PLACE

_LINK = re.compile(rb"(\d{1,15}-\d{1,15})?")


class Known(NamedTuple):
    """The events since that are undone: up to where, and each observation as it was before them."""

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
            more = yield from changed_since(log, page, known.cursor, tail)
            new = {id: before for id, before in more.before.items() if id not in known.states}
            states = yield from states_before(log, page, new)
            self.known = known = Known(more.cursor, {**known.states, **states})  # at once: others may read meanwhile
        return known.states


class Changed(NamedTuple):
    """What had events behind a cursor: for each the stream id of its event before those, "" for none; and a new cursor.

    `events` counts those of the page. Unless it `is_linked`, some were not written by the append script, and do not say
    which came before them.
    """

    cursor: Cursor
    before: dict[str, str]
    events: int
    is_linked: bool


def changed_since(log: Log, page: str, cursor: Cursor, tail: Position) -> Step[Changed]:
    """Read the events of a page after a cursor, at least up to this end of the log."""
    far = tail.seq - cursor.position.seq > CHUNK
    cursor = replace(cursor, page=page if far else "")
    name, before, events, is_linked = page.encode(), dict[str, str](), 0, True
    while cursor.position < tail and (chunks := (yield from read(log, [cursor]))):
        for _, entries in chunks:
            for entry in entries:
                fields = entry_fields(entry)
                if fields.get(b"page") == name:
                    events += 1
                    is_linked = is_linked and _LINK.fullmatch(fields.get(b"prev", b"-")) is not None
                    subject, last = (fields.get(key, b"").decode("utf-8", "replace") for key in (b"subject", b"prev"))
                    before.setdefault(subject, last)
    return Changed(cursor, before, events, is_linked)


def states_before(log: Log, page: str, before: Mapping[str, str]) -> Step[dict[str, Observation | None]]:
    """Return each observation as it was after the event with this stream id; None where there was none."""
    chains = yield from walk_chains(log, log.shard(page), filter(None, before.values()))
    states: dict[str, Observation | None] = dict.fromkeys(before)
    for id, at in before.items():
        for event in chains.get(at, ()):
            states[id], _ = IN_PLACE.fold(states[id], event)
    return states
