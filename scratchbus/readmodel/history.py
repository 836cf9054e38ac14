"""Read events by their subject or position, from the log and the archive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Call, Step, batches, side_by_side
from scratchbus.errors import LogRewound, NotFound
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.below_floor import entries_at, from_archive, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.chains import events_of, read_archived, read_chain
from scratchbus.eventlog.codec import decode_entry
from scratchbus.eventlog.gaps import not_erased
from scratchbus.eventlog.raw_entries import RawEntry
from scratchbus.eventlog.stored_documents import decode_observations
from scratchbus.readmodel.freshness import Freshness
from scratchbus.readmodel.page_query import query_page

if TYPE_CHECKING:
    from scratchbus.domain.events import AnyEvent

_AT_ONCE = 500  # events read at once, or walked back over
_SUBJECTS = 100  # whose histories are read at once


def history(log: Log, page: str, subject: str) -> Step[list[AnyEvent]]:
    """Return the events about a subject, oldest first; reads no other events.

    Skips entries that are not events. Raises PositionLost if an early event was archived, and the archive cannot be
    read.
    """
    events: list[AnyEvent] = []
    at = ""
    while True:
        earlier, at = yield from walk_back(log, page, subject, at, _AT_ONCE)
        events += earlier
        if not at:
            return events[::-1]


def histories_of(log: Log, page: str, subjects: Sequence[str]) -> Step[list[list[AnyEvent]]]:
    """Return the `history` of each subject, many at once. Raises PositionLost."""
    found: list[list[AnyEvent]] = []
    for batch in batches(subjects, _SUBJECTS):
        found += yield from side_by_side([history(log, page, subject) for subject in batch])
    return found


def walk_back(log: Log, page: str, subject: str, at: str, limit: int) -> Step[tuple[list[AnyEvent], str]]:
    """Return some events about a subject, newest first, and the stream id of the previous one, "" if there is none.

    Starts at a stream id, or with the last event if it is "". Raises PositionLost.
    """
    shard = log.shard(page)
    entries, next_id = yield from _read_chain(log, page, subject, at, limit)
    if not entries and not next_id:
        next_id = yield from _last_of(log, page, subject)
        if next_id:  # above the floor it is still in the log
            entries, next_id = yield from _read_chain(log, page, subject, next_id, limit)
    if next_id and len(entries) < limit:
        ((archived, next_id),) = yield from read_archived(log, shard, [next_id], limit - len(entries), subject)
        entries = [*entries, *archived]
    return events_of(entries, shard), next_id


def _read_chain(log: Log, page: str, subject: str, start: str, limit: int) -> Step[tuple[list[RawEntry], str]]:
    keys = log.keys(log.shard(page))
    command = read_chain(log=keys.log, heads=keys.heads(page), subject=subject, begin=start, limit=limit)
    ((entries, next_id),) = yield Call(keys.shard, (command,))
    return entries, next_id.decode()


def _last_of(log: Log, page: str, subject: str) -> Step[str]:
    """Return the stream id of the last event about a subject whose head was dropped, "" if it never existed."""
    result = yield from query_page(log, page, Freshness(), "get", subject)
    for document in decode_observations(result.rows):
        return document.position.stream_id
    if result.checkpoint.is_paged:
        names = log.keys(log.shard(page)).page(page, result.checkpoint.build)
        for found in (yield from paged_out.locate(log, names, log.shard(page), [subject])).values():
            return found.stream_id
    floor = yield from read_floor(log, log.shard(page))
    if not floor.position.seq:
        return ""
    last = yield from from_archive(
        log,
        floor.position.shard,
        f"the history of {subject}, if there is one,",
        lambda archive: archive.last_of(floor.position.shard, floor.origin, page, subject),
    )
    return last.stream_id if last else ""


def read_events(log: Log, positions: Sequence[Position]) -> Step[list[AnyEvent]]:
    """Return the events at these positions, all of one shard; skip missing ones. Raises PositionLost."""
    entries = yield from entries_at(log, positions)
    return [decode_entry(entry, positions[0].shard) for entry in entries]


def read_events_of_shards(log: Log, positions: Iterable[Position]) -> Step[list[AnyEvent]]:
    """Return the events at these positions, of any shards; skip missing ones. Raises PositionLost."""
    by_shard: dict[int, list[Position]] = defaultdict(list)
    for position in positions:
        by_shard[position.shard].append(position)
    events: list[AnyEvent] = []
    for batch in chain.from_iterable(batches(each, _AT_ONCE) for each in by_shard.values()):
        events += yield from read_events(log, batch)
    return events


def check_not_erased(log: Log, positions: Sequence[Position]) -> Step[None]:
    """Raise NotFound if one of the events that were at these positions, all of one shard, was erased."""
    if positions:
        remaining = yield from not_erased(log.keys(positions[0].shard), positions)
        for position in positions:
            if position not in remaining:
                raise NotFound(f"the event at {position} was erased; the history of its subject says why")


def known_events(log: Log, positions: Sequence[Position]) -> Step[list[AnyEvent]]:
    """Return the events that were at these positions just now.

    Raises PositionLost, or LogRewound if one is no longer there.
    """
    events = yield from read_events(log, positions)
    if len(events) < len(positions):
        found = {event.position for event in events}
        yield from check_not_erased(log, [position for position in positions if position not in found])
        raise LogRewound(f"shard {positions[0].shard}: the log was replaced meanwhile; try again")
    return events
