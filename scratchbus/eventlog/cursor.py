"""Where a reader stands in a log, and whether what comes next is what follows."""

from __future__ import annotations

from dataclasses import dataclass

from scratchbus.domain.position import START, Position
from scratchbus.engine.steps import Step, ask_all
from scratchbus.errors import LogGap, LogRewound, PositionLost
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.below_floor import Floor, lost, read_floor
from scratchbus.eventlog.codec import RawEntry, entry_id, entry_position
from scratchbus.eventlog.gaps import are_erased

ANEW = "read the page, and go on behind bus.position()"
"""What a reader can do to whom something is lost."""


@dataclass(slots=True)
class Cursor:
    """Where a reader stands in one shard's log; the event's id and the log's origin tell whether it is still that log.

    A cursor with a time but no `seq` stands before the first event of that millisecond. While `page` is set, only
    that page is read, through its history index. Below the `floor`, once that is known, the archive is read.
    """

    position: Position
    event_id: str = ""
    origin: str = ""
    page: str = ""
    floor: Floor | None = None

    @property
    def below(self) -> Floor | None:
        """The floor, if it is above this cursor."""
        return self.floor if self.floor and self.position < self.floor.position else None

    def stand(self, position: Position, event_id: str) -> None:
        """Stand behind an event."""
        self.position, self.event_id = position, event_id


class Below(Exception):
    """A cursor turned out to stand below the floor of its log, and knows it now."""


def check(log: Log, place: Cursor, origin: str, at: list[RawEntry], entries: list[RawEntry]) -> Step[None]:
    """Make sure that what was read goes on behind a cursor: the log's `origin`, the entry there, and those behind it.

    Raises Below, PositionLost, LogRewound or LogGap.
    """
    shard, was = place.position.shard, place.position
    if place.origin and origin != place.origin:
        raise LogRewound(f"shard {shard}: this is not the log that was read before; read it again from the start")
    place.origin = origin
    if at and place.event_id and entry_id(at[0]) != place.event_id:
        raise LogRewound(f"shard {shard}: {was} is not the event it was before; read the log again from the start")
    keys = log.keys(shard)
    if not at and was.seq and not (yield from are_erased(keys, was.seq - 1, was.seq + 1)):
        yield from _check_end(log, place)
    before = was.seq if was.seq or was.ms == 0 else None
    if before is None and entries:
        yield from _look_below(log, place)
    for entry in entries:
        seq = int(entry[0].rpartition(b"-")[2])
        if before is not None and seq <= before:
            raise LogRewound(f"shard {shard}: after {was} comes {entry[0].decode()}; read the log again from the start")
        if before is not None and seq != before + 1 and not (yield from are_erased(keys, before, seq)):
            (first,) = yield from ask_all(shard, [("XRANGE", keys.log, "-", "+", "COUNT", 1)])
            if first and entry_position(first[0], shard).seq >= seq:  # more may have been trimmed by now
                yield from _look_below(log, place)
                raise trimmed(was, f"it begins at {entry[0].decode()}")
            missing = f"events {before + 1} to {seq - 1} are missing before {entry[0].decode()}"
            raise LogGap(f"shard {shard}: {missing}; {ANEW}")
        before = seq


def _check_end(log: Log, place: Cursor) -> Step[None]:
    """Explain why the log does not have the event at a cursor, unless that is the last one that was trimmed."""
    shard, was, keys = place.position.shard, place.position, log.keys(place.position.shard)
    tail, first = yield from ask_all(shard, [("GET", keys.tail), ("XRANGE", keys.log, "-", "+", "COUNT", 1)])
    end = Position.parse(tail.partition(b"|")[0].decode()) if tail else START
    if (end.ms, end.seq) < (was.ms, was.seq):
        raise LogRewound(f"shard {shard}: the log ends at {end}, before {was}; read it again from the start")
    begin = entry_position(first[0], shard).seq if first else 0
    if begin > was.seq + 1 and not (yield from are_erased(keys, was.seq, begin)):
        yield from _look_below(log, place)
        raise trimmed(was, f"it begins at {first[0][0].decode()}")
    was_read = place.event_id and 0 < begin <= was.seq
    if end.seq < was.seq or was_read:
        raise LogRewound(f"shard {shard}: the log does not have {was}; read it again from the start")


def _look_below(log: Log, place: Cursor) -> Step[None]:
    """Raise Below if a cursor stands below the floor of its log; PositionLost if it does and there is no archive."""
    place.floor = yield from read_floor(log, place.position.shard)
    if place.below and log.past is None:
        raise lost(place.position.shard, "the log up to " + str(place.below.position))
    if place.below:
        raise Below


def trimmed(was: Position, what: str) -> PositionLost:
    """Return the error for a reader that a log was trimmed past."""
    return PositionLost(f"shard {was.shard}: the log was trimmed past {was}, {what}; {ANEW}")
