"""The newest events of a log, read from its end backwards."""

from __future__ import annotations

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.position import Position, in_time
from scratchbus.domain.values import MAX_SAFE_INTEGER
from scratchbus.engine.steps import Step, ask_all
from scratchbus.errors import InvalidPosition, shown
from scratchbus.eventlog.below_floor import entries_at
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.cursor import check_shards
from scratchbus.eventlog.entry_filter import EntryFilter, decode_wanted
from scratchbus.eventlog.foreign import appended
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.positions import read_positions_back

MAX_CHUNK = 2_000
"""The most entries that are requested at once."""


def newest(log: Log, count: int, before: Position | str | None, entry_filter: EntryFilter) -> Step[list[AnyEvent]]:
    """Return the last wanted events before a position, oldest first, of all shards in the order of time.

    Read the log backwards until there are enough; skip trimmed events. Raises InvalidPosition.
    """
    if isinstance(before, str):
        before = Position.parse(before)
    elif before is not None and not isinstance(before, Position):
        raise InvalidPosition(f"before: {shown(before)} is not the position of an event")
    if before is not None:
        check_shards(log, before)
    if entry_filter.pages is not None and len(entry_filter.pages) == 1:
        (page,) = entry_filter.pages
        return (yield from _newest_of_page(log, page.decode(), count, before, entry_filter))
    pages = None if entry_filter.pages is None else {log.shard(page.decode()) for page in entry_filter.pages}
    found: list[AnyEvent] = []
    for shard in range(log.shards):
        if pages is None or shard in pages:
            found += yield from _newest_of(log, shard, count, before, entry_filter)
    return sorted(found, key=in_time)[-count:]


def _newest_of(
    log: Log, shard: int, count: int, before: Position | None, entry_filter: EntryFilter
) -> Step[list[AnyEvent]]:
    """Return the last wanted events of one shard, newest first."""
    keys, until = log.keys(shard), _until(shard, before)
    events: list[AnyEvent] = []
    end, chunk = until.stream_id, min(count, MAX_CHUNK)
    while until.ms >= 0:
        rows, tail, origin = yield from ask_all(
            shard, [("XREVRANGE", keys.log, end, "-", "COUNT", chunk), ("GET", keys.tail), ("GET", keys.origin)]
        )
        entries = appended(rows[::-1], tail, origin, shard)
        events += decode_wanted([(shard, entries[::-1])], entry_filter)
        if len(rows) < chunk or len(events) >= count:
            return events[:count]
        end, chunk = f"({rows[-1][0].decode()}", min(2 * chunk, MAX_CHUNK)
    return events  # nothing is before the beginning


def _newest_of_page(
    log: Log, page: str, count: int, before: Position | None, entry_filter: EntryFilter
) -> Step[list[AnyEvent]]:
    """Return the last wanted events of one page, oldest first, by its history index; reads no other pages."""
    shard = log.shard(page)
    keys, until = log.keys(shard), _until(shard, before)
    while True:
        folded = yield from read_checkpoint(keys)
        key = keys.page(page, folded.build).positions
        found = yield from _unfolded(log, folded.position, until, entry_filter)
        at, chunk = min(until, folded.position), count  # events folded meanwhile were found above
        while len(found) < count and (positions := (yield from read_positions_back(shard, key, at, chunk))):
            entries = yield from entries_at(log, positions)
            found = decode_wanted([(shard, entries)], entry_filter) + found
            at, chunk = positions[0]._replace(seq=positions[0].seq - 1), min(2 * chunk, MAX_CHUNK)
        if (yield from read_checkpoint(keys)).build == folded.build:
            return found[-count:]  # else the index may have been removed meanwhile


def _unfolded(log: Log, after: Position, until: Position, entry_filter: EntryFilter) -> Step[list[AnyEvent]]:
    """Return the wanted events after the checkpoint, which the index does not have yet."""
    reader, is_end = LogReader(log, after, until=until.stream_id, skips_lost=True), after >= until
    found: list[AnyEvent] = []
    while not is_end:
        entries, is_end, *_ = yield from reader.read()
        found += decode_wanted([(after.shard, entries)], entry_filter)
    return [event for event in found if event.position <= until]  # archived ones may be after it


def _until(shard: int, before: Position | None) -> Position:
    """Return the last position of a shard before another one, in the order of time across shards.

    There need not be an event. It has a negative time if nothing can be before the other one.
    """
    if before is None:
        return Position(MAX_SAFE_INTEGER, MAX_SAFE_INTEGER, shard)
    if shard == before.shard and before.seq:
        return before._replace(seq=before.seq - 1)
    return Position(before.ms if shard < before.shard else before.ms - 1, MAX_SAFE_INTEGER, shard)
