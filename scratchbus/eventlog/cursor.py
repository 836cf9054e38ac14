"""Cursors in the log, and the check that the entries read next follow them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from scratchbus.domain.position import START, BusPosition, Position, event_range
from scratchbus.domain.time_checks import When, as_when
from scratchbus.engine.steps import Sent, Step, ask, ask_all
from scratchbus.errors import InvalidPosition, LogError, LogGap, LogRewound, PositionLost, shown
from scratchbus.eventlog.below_floor import Floor, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.gaps import are_erased
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.raw_entries import RawEntry, entry_id, entry_numbers, entry_position, text_of

E = TypeVar("E", bound=LogError)

ADVICE = (
    "; read the page, and continue at the end of the log: after bus.position() in Python, with `scratchbus tail"
    " --follow --after now` on the command line"
)
"""The advice to a reader that lost events."""

FROM_START = ": read it from the start"
"""The advice to a reader with a position that its log does not have."""

MAX_CLOCK_SKEW_MS = 60_000
"""How far servers' clocks, and the times at which they are read, may differ: events of this span may be repeated on
other shards when a reader continues after one event of a bus on several servers."""


@dataclass(slots=True)
class Cursor:
    """A reader's position in one shard's log; the event's id and the log's origin show whether it is still that log.

    A cursor with a time but no `seq` stands before the first event of that millisecond. If `page` is set, only that
    page is read, through its history index. Below the `floor`, once it is known, the archive is read. `has_more` says
    whether the last read stopped before the end; then `next_read` is the next one, already sent. `batch` is how many
    entries the last batch had.
    """

    position: Position
    event_id: str = ""
    origin: str = ""
    page: str = ""
    floor: Floor | None = None
    has_more: bool = False
    batch: int = field(default=1, compare=False)
    next_read: Sent | None = field(default=None, init=False, compare=False, repr=False)  # not copied

    @property
    def floor_above(self) -> Floor | None:
        """The floor, if it is above this cursor."""
        return self.floor if self.floor and self.position < self.floor.position else None

    def move_to(self, position: Position, event_id: str) -> None:
        """Move to the position after an event."""
        self.position, self.event_id = position, event_id


def check_shards(log: Log, position: Position | BusPosition) -> None:
    """Raise InvalidPosition for a position that no log can have, or of a bus with other shards."""
    for each in position.shards if isinstance(position, BusPosition) else (position,):
        each.checked()
    if isinstance(position, BusPosition):
        if len(position.shards) != log.shards:
            raise InvalidPosition(
                f"{shown(str(position))} is a position of a bus with {len(position.shards)} shards, not {log.shards}"
            )
    elif position.shard >= log.shards:
        raise InvalidPosition(f"{shown(str(position))} is on shard {position.shard}; the bus has {log.shards}")


def not_of_log(shard: int, what: str, advice: str = "") -> LogRewound:
    """Return the error for a position that a log does not have."""
    return LogRewound(f"shard {shard}: {what}; it was rewound or replaced, or the position is of another bus{advice}")


def _not_before(entry: RawEntry, position: Position) -> LogRewound:
    """Return the error for a position with an entry after it that has no greater `seq`."""
    what = f"the log does not have {position}; it has {entry[0].decode()} after it"
    return not_of_log(position.shard, what, FROM_START)


def bus_position(log: Log) -> Step[BusPosition]:
    """Return the end of all logs of the bus."""
    ends: list[Position] = []
    for shard in range(log.shards):
        tail = yield from ask(shard, "GET", log.keys(shard).tail)
        ends.append(end_of(tail, shard))
    return BusPosition(tuple(ends))


def cursors(log: Log, after: When | None, pages: Collection[str] | None = None) -> Step[list[Cursor]]:
    """Return cursors after a position, on the shards of these pages or on all.

    Raises InvalidPosition, or LogRewound for a position that the log cannot have.
    """
    after = START if after is None else as_when(after, "after")
    if isinstance(after, datetime):
        after = Position.before(after)
    check_shards(log, after)
    if after is START:
        starts = [START] * log.shards
    elif isinstance(after, BusPosition):
        starts = list(after.shards)
    else:
        ms = max(0, after.ms - (MAX_CLOCK_SKEW_MS if log.is_spread else 0))
        starts = [after if shard == after.shard else Position(ms, 0) for shard in range(log.shards)]
    wanted_pages = None if pages is None else [pages] if isinstance(pages, str) else list(pages)
    found = []
    for shard, start in enumerate(starts):
        if wanted_pages is not None and shard not in map(log.shard, wanted_pages):
            continue
        keys = log.keys(shard)
        position = start._replace(shard=shard)
        origin, entries_at_start, tail = yield from ask_all(
            shard,
            [
                ("GET", keys.origin),
                ("XRANGE", keys.log, position.stream_id, position.stream_id),
                ("GET", keys.tail),
            ],
        )
        end = end_of(tail, shard)
        if position.seq and position > end:
            raise not_of_log(shard, f"the log ends at {end}, before {position}", FROM_START)
        if position.seq and not entries_at_start:  # it may have been trimmed or erased
            following = yield from ask(shard, "XRANGE", keys.log, f"({position.stream_id}", "+", "COUNT", 1)
            if following and entry_position(following[0], shard).seq <= position.seq:
                raise _not_before(following[0], position)
        event_id = entry_id(entries_at_start[0]) if entries_at_start else ""
        page = wanted_pages[0] if wanted_pages is not None and len(wanted_pages) == 1 else ""
        found.append(Cursor(position, event_id, text_of(origin or b""), page))
    return found


def check(
    log: Log, cursor: Cursor, origin: str, entries_at_cursor: list[RawEntry], entries: list[RawEntry]
) -> Step[bool]:
    """Check that entries follow a cursor, given the log's `origin` and the entry at the cursor.

    Returns False if the log was trimmed meanwhile: then read both again. Raises PositionLost, LogRewound or
    LogGap.
    """
    shard, was = cursor.position.shard, cursor.position
    if cursor.origin and origin != cursor.origin:
        raise LogRewound(f"shard {shard}: this is not the log that was read before; read it again from the start")
    cursor.origin = origin
    if entries_at_cursor and cursor.event_id and entry_id(entries_at_cursor[0]) != cursor.event_id:
        raise LogRewound(f"shard {shard}: {was} is not the event it was before; read the log again from the start")
    keys = log.keys(shard)
    is_missing = not entries_at_cursor and was.seq and not (yield from are_erased(keys, was.seq - 1, was.seq + 1))
    if is_missing and not (yield from _check_trimmed(log, cursor)):
        return False
    before = was.seq if was.seq or was.ms == 0 else None
    _, seqs = entry_numbers(entries)
    first_seq = before + 1 if before is not None else seqs[0] if seqs else 0
    if seqs == [*range(first_seq, first_seq + len(seqs))]:
        return True
    for entry, seq in zip(entries, seqs, strict=True):
        if before is not None and seq <= before:
            raise _not_before(entry, was)
        if before is not None and seq != before + 1 and not (yield from are_erased(keys, before, seq)):
            (first,) = yield from ask_all(shard, [("XRANGE", keys.log, "-", "+", "COUNT", 1)])
            if first and entry_position(first[0], shard).seq >= seq:  # more may have been trimmed by now
                if (yield from _is_below_now(log, cursor)):
                    return False
                raise trimmed(was, f"it begins at {entry[0].decode()}")
            lost = event_range(before + 1, seq - 1)
            raise advised(LogGap(f"shard {shard}: the log has lost {lost}, before {entry[0].decode()}"))
        before = seq
    return True


def _check_trimmed(log: Log, cursor: Cursor) -> Step[bool]:
    """Check that the event at a cursor, which is missing in the log, is the last trimmed one.

    Returns False if the cursor is below the floor by now.
    """
    shard, was, keys = cursor.position.shard, cursor.position, log.keys(cursor.position.shard)
    tail, first = yield from ask_all(shard, [("GET", keys.tail), ("XRANGE", keys.log, "-", "+", "COUNT", 1)])
    end = end_of(tail, shard)
    if end < was:
        raise not_of_log(shard, f"the log ends at {end}, before {was}", FROM_START)
    first_seq = entry_position(first[0], shard).seq if first else 0
    if first_seq > was.seq + 1 and not (yield from are_erased(keys, was.seq, first_seq)):
        if (yield from _is_below_now(log, cursor)):
            return False
        raise trimmed(was, f"it begins at {first[0][0].decode()}")
    was_read = cursor.event_id and 0 < first_seq <= was.seq
    if end.seq < was.seq or was_read:
        raise not_of_log(shard, f"the log does not have {was}", FROM_START)
    return True


def _is_below_now(log: Log, cursor: Cursor) -> Step[bool]:
    cursor.floor = yield from read_floor(log, cursor.position.shard)
    return cursor.floor_above is not None


def advised(error: E) -> E:
    """Add the advice to an error for a reader that lost events."""
    error.advice = ADVICE
    return error


def trimmed(was: Position, what: str) -> PositionLost:
    """Return the error for a reader whose position was trimmed."""
    return advised(PositionLost(f"shard {was.shard}: the log was trimmed past {was}, {what}"))
