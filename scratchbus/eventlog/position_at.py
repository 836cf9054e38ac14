"""Find the position at which a log ended at some time in the past."""

from __future__ import annotations

from scratchbus.domain.position import START, Position
from scratchbus.engine.steps import Step, ask_all
from scratchbus.errors import PositionLost
from scratchbus.eventlog.below_floor import archived_after, entries_at, from_archive, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.cursor import not_of_log
from scratchbus.eventlog.foreign import up_to
from scratchbus.eventlog.gaps import are_erased, not_erased
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.raw_entries import RawEntry, entry_id, entry_position, index_in_batch


def last_until(log: Log, shard: int, ms: int) -> Step[Position]:
    """Return the last event of a shard's log appended up to a millisecond; the start if there was none yet.

    Raises PositionLost if that event is no longer in the log and the archive cannot be read.
    """
    name, ms = log.keys(shard).log, max(0, ms)
    before, first, tail = yield from ask_all(
        shard,
        [
            ("XREVRANGE", name, ms, "-", "COUNT", 1),
            ("XRANGE", name, "-", "+", "COUNT", 1),
            ("GET", log.keys(shard).tail),
        ],
    )
    end = end_of(tail, shard)
    if before:
        return min(end, entry_position(before[0], shard))  # entries behind the end were added by hand
    floor = yield from read_floor(log, shard)
    if 0 < floor.position.ms <= ms:
        return floor.position
    if ms and floor.position.seq:
        found: Position = yield from from_archive(
            log, shard, "everything before that time", lambda archive: archive.last_until(shard, floor.origin, ms)
        )
        return found
    first = up_to(end, first)
    if ms and first and not (yield from are_erased(log.keys(shard), 0, entry_position(first[0], shard).seq)):
        raise PositionLost(
            f"shard {shard}: the log was trimmed to {first[0][0].decode()}, after that time; ask for a later one"
        )
    return START._replace(shard=shard)


def batch_end(log: Log, position: Position) -> Step[Position]:
    """Return the last event of the batch that the event at a position belongs to.

    A position with a time but no `seq` stands before the first event of that millisecond. Raises LogRewound for a
    position that was never in this log, and PositionLost for one no longer in it.
    """
    shard = position.shard
    if not position.seq:
        return (yield from last_until(log, shard, position.ms - 1))
    keys = log.keys(shard)
    before, after, tail = yield from ask_all(
        shard,
        [
            ("XREVRANGE", keys.log, position.stream_id, "-", "COUNT", 1),
            ("XRANGE", keys.log, position.stream_id, "+", "COUNT", 1),
            ("GET", keys.tail),
        ],
    )
    end = end_of(tail, shard)
    if not up_to(end, after):
        raise not_of_log(shard, f"the log ends at {end}, before {position}")
    low, high = entry_position(before[0], shard) if before else None, entry_position(after[0], shard)
    was_erased = position.seq < high.seq and not (yield from not_erased(keys, [position]))
    if low is None and position.seq < high.seq and not was_erased:
        return (yield from _archived_end(log, position, high))
    if position != high and not was_erased:
        raise not_of_log(shard, f"the log has no event at {position}")
    entry = ((yield from _next_archived(log, position)) if was_erased else None) or after[0]
    high = entry_position(entry, shard)
    index, total = index_in_batch(entry)
    return high._replace(seq=high.seq + max(0, total - index)) if high.seq - index < position.seq else position


def _archived_end(log: Log, position: Position, first: Position) -> Step[Position]:
    """Return the last event of a batch that is no longer in the log, which by now begins at `first`."""
    found = yield from entries_at(log, [position])
    if found:
        index, total = index_in_batch(found[0])
        return position._replace(seq=position.seq + max(0, total - index))
    if position <= (yield from read_floor(log, position.shard)).position:
        raise not_of_log(position.shard, f"the log has no event at {position}")
    raise PositionLost(
        f"shard {position.shard}: the log was trimmed to {first}, after {position}; ask for a later position"
    )


def _next_archived(log: Log, position: Position) -> Step[RawEntry | None]:
    """Return the next archived entry after a position below the floor; None for any other position."""
    floor = yield from read_floor(log, position.shard)
    chunk = yield from archived_after(log, floor, position, 1_000)
    return chunk.entries[0] if chunk.entries else None


def event_id_at(log: Log, position: Position) -> Step[str]:
    """Return the id of the event at a position; "" if there is none."""
    found = yield from entries_at(log, [position])
    return entry_id(found[0]) if found else ""
