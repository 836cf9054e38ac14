"""Reading below the floor of a log: trimmed entries come from the archive, in the form that the log has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import NamedTuple, TypeVar

from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Call, Fetch, Step, ask_all
from scratchbus.errors import LogRewound, PositionLost
from scratchbus.eventlog.archive_protocol import EntryChunk, LogArchive
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.gaps import count_all_erased, not_erased
from scratchbus.eventlog.layouts import read_last
from scratchbus.eventlog.raw_entries import RawEntry, entry_position, text_of

T = TypeVar("T")


@lua_script("eventlog/fetch", only_reads=True)
def _fetch(*ranges: str, log: Key) -> None:
    """Read the entries of a stream in these ranges, each given by its first and last id and the most entries."""


class Floor(NamedTuple):
    """The lower end of a log: the last archived event that may be trimmed; `position` has no `seq` if there is none."""

    position: Position
    event_id: str
    origin: str

    @classmethod
    @lru_cache(maxsize=256)  # a floor is read with every read of its log, and seldom moves
    def parse(cls, row: bytes | None, origin: bytes | None, shard: int) -> Floor:
        """Read the stored form."""
        return cls(*read_last(row, shard), text_of(origin or b""))


def read_floor(log: Log, shard: int) -> Step[Floor]:
    """Return the floor of a shard's log."""
    keys = log.keys(shard)
    row, origin = yield from ask_all(shard, [("GET", keys.floor), ("GET", keys.origin)])
    return Floor.parse(row, origin, shard)


def other_log(floor: Floor, position: Position) -> LogRewound:
    """Return the error for a position that is not in the log that is archived up to this floor."""
    return LogRewound(
        f"shard {position.shard}: {position} is not in the log that is archived up to {floor.position}, which was"
        " flushed, replaced or rewound; read it again from the start"
    )


def from_archive(log: Log, shard: int, what: str, call: Callable[[LogArchive], T]) -> Step[T]:
    """Query the archive. Raises PositionLost if none is set; the error says `what` is wanted."""
    if log.archive is None:
        raise PositionLost(f"shard {shard}: {what} was archived; set archive_url to the location of the archive")
    found: T = yield Fetch(partial(call, log.archive))
    return found


def archived_after(log: Log, floor: Floor, after: Position, limit: int, page: str = "") -> Step[EntryChunk]:
    """Return the next archived entries after a position; none only if none are left below the floor.

    Raises PositionLost if there is no archive, and LogRewound for a position of another log: there, later events have
    smaller numbers.
    """
    if after < floor.position and after.seq >= floor.position.seq:
        raise other_log(floor, after)
    shard, chunk = after.shard, EntryChunk([], after, "")
    while not chunk.entries and (at := chunk.at) < floor.position:
        what = f"everything after {at}" if at.seq or at.ms else "the beginning of the log"
        read = partial(_read_after, shard, floor, at, limit, page)
        chunk = yield from from_archive(log, shard, what, read)
        chunk = chunk._replace(entries=(yield from _without_erased(log, shard, chunk.entries)))
    return chunk


def _read_after(shard: int, floor: Floor, at: Position, limit: int, page: str, archive: LogArchive) -> EntryChunk:
    return archive.after(shard, floor.origin, at, floor.position, limit, page)


def _without_erased(log: Log, shard: int, entries: list[RawEntry]) -> Step[list[RawEntry]]:
    """Leave out erased entries: this process may have cached the segment before the erasure."""
    keys = log.keys(shard)
    if not entries or not (yield from count_all_erased(keys)):
        return entries
    remaining = set((yield from not_erased(keys, [entry_position(entry, shard) for entry in entries])))
    return [entry for entry in entries if entry_position(entry, shard) in remaining]


def _ranges_of(positions: Sequence[Position]) -> Iterator[str]:
    """Yield ranges that include these positions: one for all that follow each other, which is read many times faster.

    Each has as many entries at most: a position that the log never had must not stretch it.
    """
    first = last = positions[0]
    for each in positions[1:]:
        if each.seq != last.seq + 1 or each.ms < last.ms:
            yield from (first.stream_id, last.stream_id, str(last.seq - first.seq + 1))
            first = each
        last = each
    yield from (first.stream_id, last.stream_id, str(last.seq - first.seq + 1))


def entries_at(log: Log, positions: Sequence[Position]) -> Step[list[RawEntry]]:
    """Return the entries at these positions of one shard, from the log or the archive; leave out missing ones.

    Raises PositionLost for an archived one if no archive can be read.
    """
    if not positions:
        return []
    shard = positions[0].shard
    keys = log.keys(shard)
    (reply,) = yield Call(shard, (_fetch(*_ranges_of(positions), log=keys.log),))
    by_position: dict[Position, RawEntry] = {entry_position(entry, shard): entry for entry in reply}
    missing = [each for each in positions if each not in by_position]
    if not missing:
        return [by_position[each] for each in positions]
    (reply,) = yield Call(shard, (_fetch(*_ranges_of(missing), log=keys.kept),))
    by_position |= {entry_position(entry, shard): entry for entry in reply}
    floor = yield from read_floor(log, shard)
    archived = [each for each in missing if each not in by_position and each <= floor.position]
    if archived:
        found = yield from from_archive(
            log, shard, f"the event at {archived[0]}", lambda archive: archive.at(shard, floor.origin, archived)
        )
        by_position |= {
            entry_position(entry, shard): entry for entry in (yield from _without_erased(log, shard, found))
        }
    lost = [each for each in missing if each not in by_position and each > floor.position]
    if lost:  # or one of these is at the end of a range that begins with a lost one
        singly = chain.from_iterable((each.stream_id, each.stream_id, "1") for each in lost)
        (reply,) = yield Call(shard, (_fetch(*singly, log=keys.log),))
        by_position |= {entry_position(entry, shard): entry for entry in reply}
    return [by_position[each] for each in positions if each in by_position]
