"""Reading the log in order, from a cursor on, without ever skipping in silence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from scratchbus.domain.events import Event
from scratchbus.domain.position import START, BusPosition, Position
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.errors import InvalidPosition, LogGap, LogRewound, shown
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.archived import Stretch
from scratchbus.eventlog.below_floor import archived_after, entries_at, read_floor
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.codec import Poison, RawEntry, decode_entry, entry_fields, entry_id, entry_position
from scratchbus.eventlog.cursor import ANEW, Below, Cursor, check, trimmed
from scratchbus.eventlog.gaps import not_erased
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.positions import read_positions
from scratchbus.telemetry.logs import stderr_logger

CHUNK = 500
LONGEST_BLOCK_MS = 5_000
STOPPABLE_BLOCK_MS = 500

APART_MS = 60_000
"""How far servers' clocks, and the moments at which they are read, may be apart: so much comes again on other shards
when a reader goes on behind one event of a bus that is on several servers."""

logger = stderr_logger()


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
        raise InvalidPosition(f"{shown(after)} is not a position; pass the position of an event, or `bus.position()`")
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
        event_id = entry_id(at[0]) if at else ""
        page = only[0] if only is not None and len(only) == 1 else ""
        out.append(Cursor(position, event_id, origin.decode() if origin else "", page))
    return out


def read(log: Log, places: list[Cursor], block_ms: int | None = None) -> Step[list[tuple[int, list[RawEntry]]]]:
    """Return the next entries behind the cursors, by shard, and move the cursors.

    With `block_ms` it waits that long for the first, unless the shards are on several servers: nobody should wait for
    one while another has news (see `feeding`). What was trimmed comes from the archive. Raises PositionLost when there
    is none, LogRewound when it is no longer the log that was read before, LogGap when entries are missing.
    """
    if len(places) == 1 and places[0].page:
        found = yield from _read_indexed(log, places[0])
        if found:
            return [(places[0].position.shard, found)]
    while True:
        try:
            return (yield from _read_on(log, places, block_ms))
        except Below:
            continue


def _read_on(log: Log, places: list[Cursor], block_ms: int | None) -> Step[list[tuple[int, list[RawEntry]]]]:
    """Return the next entries behind the cursors, and move these. Raises Below, and what `read` raises."""
    stretches = yield from _read_below(log, places)
    live = [place for place in places if place.position.shard not in stretches]
    block = () if block_ms is None or stretches else ("BLOCK", min(block_ms, LONGEST_BLOCK_MS))
    groups = [live] if live else []
    if log.is_spread and len(places) > 1:
        groups, block = [[place] for place in live], ()
    found: dict[int, list[RawEntry]] = {shard: stretch.entries for shard, stretch in stretches.items()}
    shards = {log.keys(place.position.shard).log.encode(): place.position.shard for place in live}
    checks: list[Any] = []
    for group in groups:
        answer, *some = yield from ask_all(group[0].position.shard, _questions(log, group, block))
        found |= {shards[key]: entries for key, entries in answer or ()}
        checks += some
    for place, origin, at in zip(live, checks[::2], checks[1::2], strict=True):
        yield from check(log, place, origin.decode() if origin else "", at, found.get(place.position.shard, []))
    whole = _in_time(found, {shard: stretch.at.ms for shard, stretch in stretches.items()})
    for place in places:
        shard = place.position.shard
        entries = whole.get(shard, [])
        if shard in stretches and len(entries) == len(found[shard]):
            place.stand(stretches[shard].at, stretches[shard].event_id)
        elif entries:
            place.stand(entry_position(entries[-1], shard), entry_id(entries[-1]))
    return [(place.position.shard, mine) for place in places if (mine := whole.get(place.position.shard))]


def _read_below(log: Log, places: list[Cursor]) -> Step[dict[int, Stretch]]:
    """Return what comes next in the archive for the cursors that stand below the floor of their log, by shard."""
    stretches: dict[int, Stretch] = {}
    for place in places:
        if place.below:
            stretch = yield from archived_after(log, place.below, place.position, CHUNK)
            if stretch.entries:
                stretches[place.position.shard] = stretch
            else:
                place.stand(stretch.at, stretch.event_id)
    return stretches


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


def _in_time(found: dict[int, list[RawEntry]], ends: dict[int, int]) -> dict[int, list[RawEntry]]:
    """Leave out what is later than the end of a shard that has more to give; `ends` are those known to have, in ms.

    So all shards are read in time's order, and whoever goes on behind an event's position has seen all before it.
    """
    full = {shard: entry_position(entries[-1], 0).ms for shard, entries in found.items() if len(entries) >= CHUNK}
    ends = full | ends
    if not ends or len(found) == 1:
        return found
    first = min(ends.values())
    return {
        shard: [entry for entry in entries if entry_position(entry, 0).ms <= first] for shard, entries in found.items()
    }


def _read_indexed(log: Log, place: Cursor) -> Step[list[RawEntry]]:
    """Return the next entries of one page by its history index; it costs what it returns.

    At the end of what is folded the cursor leaves the index, and goes on in the log behind the checkpoint.
    """
    shard = place.position.shard
    keys = log.keys(shard)
    while True:
        below = yield from _read_page_below(log, place)
        if below:
            return below
        checkpoint = yield from read_checkpoint(keys)
        key = PageKeys(keys, place.page, checkpoint.build).positions
        spots = yield from read_positions(shard, key, place.position, CHUNK)
        place.floor = yield from read_floor(log, shard)  # after the index, which loses what is below it
        if place.below or (yield from read_checkpoint(keys)).build != checkpoint.build:
            continue  # what was read may be gone in part
        if not spots or checkpoint.origin != place.origin:
            place.page = ""
            if checkpoint.origin == place.origin and checkpoint.position > place.position:
                place.stand(checkpoint.position, checkpoint.event_id)
            return []
        entries: list[RawEntry] = yield from entries_at(log, spots)
        if len(entries) != len(spots):
            there = {entry_position(entry, shard) for entry in entries}
            gone = yield from not_erased(keys, [spot for spot in spots if spot not in there])
            if gone and gone[0] == spots[0]:
                raise trimmed(place.position, f"{gone[0]} is not there")
            if gone:
                missing = f"{len(gone)} events of page {place.page!r} are missing, the first at {gone[0]}"
                raise LogGap(f"shard {shard}: {missing}; {ANEW}")
        place.stand(spots[-1], entry_id(entries[-1]) if entries else "")
        if entries:  # else all of them were erased just now
            return entries


def _read_page_below(log: Log, place: Cursor) -> Step[list[RawEntry]]:
    """Return the next archived entries of a page, none at the floor, and move the cursor."""
    if not place.below:
        return []
    stretch = yield from archived_after(log, place.below, place.position, CHUNK, place.page)
    place.stand(stretch.at, stretch.event_id)
    return stretch.entries


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
