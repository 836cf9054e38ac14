"""Reading the log in order, from a cursor on, without ever skipping in silence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from scratchbus.domain.events import Event
from scratchbus.domain.position import START, BusPosition, Position
from scratchbus.errors import InvalidPosition, LogGap, LogRewound, PositionLost, shown
from scratchbus.log.append import Log
from scratchbus.log.codec import Poison, RawEntry, decode_entry, entry_fields, entry_position
from scratchbus.log.commit import read_checkpoint
from scratchbus.log.gaps import are_erased, not_erased
from scratchbus.log.keys import PageKeys
from scratchbus.log.positions import read_positions
from scratchbus.log.steps import Call, Script, Step, ask, ask_all
from scratchbus.logs import stderr_logger

CHUNK = 500
LONGEST_BLOCK_MS = 5_000
STOPPABLE_BLOCK_MS = 500

APART_MS = 60_000
"""How far servers' clocks, and the moments at which they are read, may be apart: so much comes again on other shards
when a reader goes on behind one event of a bus that is on several servers."""

_FETCH = Script("fetch", only_reads=True)

_ANEW = "read the page, and go on behind bus.position()"

logger = stderr_logger()


@dataclass(slots=True)
class Cursor:
    """Where a reader stands in one shard's log; the event's id and the log's origin tell whether it is still that log.

    A cursor with a time but no `seq` stands before the first event of that millisecond. While `page` is set, only
    that page is read, through its history index.
    """

    position: Position
    event_id: str = ""
    origin: str = ""
    page: str = ""


class Stop(Protocol):
    """What can say that it is time to stop: a threading.Event or an asyncio.Event."""

    def is_set(self) -> bool:
        """Say whether it is time."""
        ...


class Narrow(NamedTuple):
    """Which events a reader wants; None is all of them."""

    pages: frozenset[bytes] | None = None
    types: frozenset[bytes] | None = None
    kinds: frozenset[bytes] | None = None

    @classmethod
    def of(cls, pages: Collection[str] | None, types: Collection[str] | None, kinds: Collection[str] | None) -> Narrow:
        """Make one from what callers give: a text counts as a list of one."""
        return cls(_names(pages), _names(types), _names(kinds))

    def wants(self, fields: dict[bytes, bytes]) -> bool:
        """Say whether an entry with these fields is wanted."""
        return (
            (self.pages is None or fields.get(b"page") in self.pages)
            and (self.types is None or fields.get(b"type") in self.types)
            and (self.kinds is None or fields.get(b"kind") in self.kinds)
        )


def _names(given: Collection[str] | None) -> frozenset[bytes] | None:
    if given is None:
        return None
    return frozenset(name.encode() for name in ([given] if isinstance(given, str) else given))


def bus_position(log: Log) -> Step[BusPosition]:
    """Return where all logs of the bus end."""
    ends = []
    for shard in range(log.shards):
        (tail,) = yield from ask_all(shard, [("GET", log.keys(shard).tail)])
        ends.append(Position.parse(tail.partition(b"|")[0].decode())._replace(shard=shard) if tail else START)
    return BusPosition(tuple(ends))


def cursors(
    log: Log, after: BusPosition | Position | str | None, pages: Collection[str] | None = None
) -> Step[list[Cursor]]:
    """Return the cursors that stand behind a position, on the shards of these pages or on all.

    Raises InvalidPosition, or LogRewound for a position that the log does not reach.
    """
    if isinstance(after, str):
        after = BusPosition.parse(after) if "," in after else Position.parse(after)
    if after is None:
        places = [START] * log.shards
    elif isinstance(after, BusPosition):
        if len(after.shards) != log.shards:
            raise InvalidPosition(
                f"{shown(str(after))} is a position of a bus with {len(after.shards)} shards, not {log.shards}"
            )
        places = list(after.shards)
    elif not isinstance(after, Position):
        raise InvalidPosition(f"{shown(after)} is not a position; pass that of an event, or `bus.position()`")
    elif after.shard >= log.shards:
        raise InvalidPosition(f"{shown(str(after))} is on shard {after.shard}; the bus has {log.shards}")
    else:
        ms = max(0, after.ms - (APART_MS if log.is_spread else 0))
        places = [after if shard == after.shard else Position(ms, 0) for shard in range(log.shards)]
    only = None if pages is None else [pages] if isinstance(pages, str) else list(pages)
    out = []
    for shard, place in enumerate(places):
        if only is not None and shard not in map(log.shard, only):
            continue
        keys = log.keys(shard)
        position = place._replace(shard=shard)
        origin, at, last = yield from ask_all(
            shard,
            [
                ("GET", keys.origin),
                ("XRANGE", keys.log, position.stream_id, position.stream_id),
                ("GET", keys.tail),
            ],
        )
        end = Position.parse(last.partition(b"|")[0].decode()) if last else START
        if position.seq and (position.ms, position.seq) > (end.ms, end.seq):
            raise LogRewound(
                f"shard {shard}: the log ends at {end}, before {position}; it was rewound or replaced, or the position"
                " is of another bus: read it from the start"
            )
        event_id = entry_fields(at[0]).get(b"id", b"").decode() if at else ""
        page = only[0] if only is not None and len(only) == 1 else ""
        out.append(Cursor(position, event_id, origin.decode() if origin else "", page))
    return out


def read(log: Log, places: list[Cursor], block_ms: int | None = None) -> Step[list[tuple[int, list[RawEntry]]]]:
    """Return the next entries behind the cursors, by shard, and move the cursors.

    With `block_ms` it waits that long for the first, unless the shards are on several servers: nobody should wait for
    one while another has news (see `feeding`). Raises PositionLost when the log was trimmed past a cursor,
    LogRewound when it is no longer the log that was read before, LogGap when entries are missing.
    """
    if len(places) == 1 and places[0].page:
        found = yield from _read_indexed(log, places[0])
        if found:
            return [(places[0].position.shard, found)]
    block = () if block_ms is None else ("BLOCK", min(block_ms, LONGEST_BLOCK_MS))
    groups = [places]
    if log.is_spread and len(places) > 1:
        groups, block = [[place] for place in places], ()
    new: dict[str, list[RawEntry]] = {}
    checks: list[Any] = []
    for group in groups:
        answer, *some = yield from ask_all(group[0].position.shard, _questions(log, group, block))
        new |= {key.decode(): entries for key, entries in answer or ()}
        checks += some
    by_key = _in_time(new)
    out = []
    for place, origin, at in zip(places, checks[::2], checks[1::2], strict=True):
        shard = place.position.shard
        entries = by_key.get(log.keys(shard).log, [])
        yield from _check(log, place, origin.decode() if origin else "", at, entries)
        if entries:
            place.position = entry_position(entries[-1], shard)
            place.event_id = entry_fields(entries[-1]).get(b"id", b"").decode()
            out.append((shard, entries))
    return out


def _questions(log: Log, places: list[Cursor], block: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the commands that read on behind the cursors, and those that tell whether it is still that log."""
    names = [log.keys(place.position.shard).log for place in places]
    commands: list[tuple[Any, ...]] = [
        ("XREAD", "COUNT", CHUNK, *block, "STREAMS", *names, *(place.position.stream_id for place in places))
    ]
    for place in places:
        keys, id = log.keys(place.position.shard), place.position.stream_id
        commands += [("GET", keys.origin), ("XRANGE", keys.log, id, id)]
    return commands


def _in_time(found: dict[str, list[RawEntry]]) -> dict[str, list[RawEntry]]:
    """Leave out what is later than the end of a shard that has more to give.

    So all shards are read in time's order, and whoever goes on behind an event's position has seen all before it.
    """
    ends = [entry_position(entries[-1], 0).ms for entries in found.values() if len(entries) >= CHUNK]
    if not ends or len(found) == 1:
        return found
    return {
        key: [entry for entry in entries if entry_position(entry, 0).ms <= min(ends)] for key, entries in found.items()
    }


def _read_indexed(log: Log, place: Cursor) -> Step[list[RawEntry]]:
    """Return the next entries of one page by its history index; it costs what it returns.

    At the end of what is folded the cursor leaves the index, and goes on in the log behind the checkpoint.
    """
    shard = place.position.shard
    keys = log.keys(shard)
    checkpoint = yield from read_checkpoint(keys)
    key = PageKeys(keys, place.page, checkpoint.build).positions
    spots = yield from read_positions(shard, key, place.position, CHUNK)
    if (yield from read_checkpoint(keys)).build != checkpoint.build:
        return (yield from _read_indexed(log, place))  # the index that was read may be gone in part
    if not spots or checkpoint.origin != place.origin:
        place.page = ""
        if checkpoint.origin == place.origin and checkpoint.position > place.position:
            place.position, place.event_id = checkpoint.position, checkpoint.event_id
        return []
    (reply,) = yield Call(shard, (_FETCH.command((keys.log,), [spot.stream_id for spot in spots]),))
    entries: list[RawEntry] = reply
    if len(entries) != len(spots):
        there = {entry_position(entry, shard) for entry in entries}
        gone = yield from not_erased(keys, [spot for spot in spots if spot not in there])
        if gone and gone[0] == spots[0]:
            raise _trimmed(place.position, f"{gone[0]} is not there")
        if gone:
            missing = f"{len(gone)} events of page {place.page!r} are missing, the first at {gone[0]}"
            raise LogGap(f"shard {shard}: {missing}; {_ANEW}")
    place.position = spots[-1]
    if not entries:
        return (yield from _read_indexed(log, place))  # all of them were erased just now
    place.event_id = entry_fields(entries[-1]).get(b"id", b"").decode()
    return entries


def _check(log: Log, place: Cursor, origin: str, at: list[RawEntry], entries: list[RawEntry]) -> Step[None]:
    shard, was = place.position.shard, place.position
    if place.origin and origin != place.origin:
        raise LogRewound(f"shard {shard}: the log is another one than was read before; read it again from the start")
    place.origin = origin
    if at and place.event_id and entry_fields(at[0]).get(b"id", b"").decode() != place.event_id:
        raise LogRewound(f"shard {shard}: {was} is another event than before; read the log again from the start")
    keys = log.keys(shard)
    if not at and was.seq and not (yield from are_erased(keys, was.seq - 1, was.seq + 1)):
        tail, first = yield from ask_all(shard, [("GET", keys.tail), ("XRANGE", keys.log, "-", "+", "COUNT", 1)])
        end = Position.parse(tail.partition(b"|")[0].decode()) if tail else START
        if (end.ms, end.seq) < (was.ms, was.seq):
            raise LogRewound(f"shard {shard}: the log ends at {end}, before {was}; read it again from the start")
        if first and entry_position(first[0], shard).seq > was.seq + 1:
            raise _trimmed(was, f"it begins at {first[0][0].decode()}")
        was_read = place.event_id and first and entry_position(first[0], shard).seq <= was.seq
        if end.seq < was.seq or was_read:
            raise LogRewound(f"shard {shard}: the log does not have {was}; read it again from the start")
    before = was.seq if was.seq or was.ms == 0 else None
    for entry in entries:
        seq = int(entry[0].rpartition(b"-")[2])
        if before is not None and seq <= before:
            raise LogRewound(f"shard {shard}: after {was} comes {entry[0].decode()}; read the log again from the start")
        if before is not None and seq != before + 1 and not (yield from are_erased(keys, before, seq)):
            (first,) = yield from ask_all(shard, [("XRANGE", log.keys(shard).log, "-", "+", "COUNT", 1)])
            if first and first[0][0] == entry[0]:
                raise _trimmed(was, f"it begins at {entry[0].decode()}")
            missing = f"events {before + 1} to {seq - 1} are missing before {entry[0].decode()}"
            raise LogGap(f"shard {shard}: {missing}; {_ANEW}")
        before = seq


def _trimmed(was: Position, what: str) -> PositionLost:
    return PositionLost(f"shard {was.shard}: the log was trimmed past {was}, {what}; {_ANEW}")


def wait(log: Log, behind: Mapping[int, Position], seconds: float) -> Step[bool]:
    """Wait until there is an event behind one of these positions, all on one server; say whether there is."""
    shards = list(behind)
    answer = yield from ask(
        shards[0], "XREAD", "COUNT", 1, "BLOCK", max(1, int(seconds * 1000)), "STREAMS",
        *(log.keys(shard).log for shard in shards), *(behind[shard].stream_id for shard in shards),
    )  # fmt: skip
    return bool(answer)


def block_ms(follow: bool, stop: Stop | None) -> int | None:
    """Return how long to wait for the next events: not at all, a moment when someone may say stop, or long."""
    return None if not follow else LONGEST_BLOCK_MS if stop is None else STOPPABLE_BLOCK_MS


def decode_wanted(chunks: Iterable[tuple[int, list[RawEntry]]], narrow: Narrow) -> list[Event]:
    """Decode the entries that are wanted, in time's order across shards; what is no event is logged and left out."""
    events = []
    for shard, entries in chunks:
        for entry in entries:
            if narrow.wants(entry_fields(entry)):
                try:
                    events.append(decode_entry(entry, shard))
                except Poison as poison:
                    logger.warning("not an event", position=str(poison.position), reason=poison.reason)
    events.sort(key=lambda event: (event.ms, event.shard, event.seq))
    return events
