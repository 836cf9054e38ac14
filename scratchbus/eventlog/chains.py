"""Walk the events of one subject backwards, each of which names the previous one, in the log and then the archive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice

from scratchbus.domain.events import AnyEvent, Event
from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Command, Key, lua_script
from scratchbus.engine.steps import Call, Step
from scratchbus.errors import PositionLost
from scratchbus.eventlog.archived import Past
from scratchbus.eventlog.below_floor import from_archive, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.codec import decode_items
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.layouts import LUA
from scratchbus.eventlog.raw_entries import RawEntry

_CHAINS, _EVENTS, _MANY = 50, 10, 500  # chains walked at once, events read of each, and of one that is longer


@lua_script("eventlog/entries", "eventlog/chains", only_reads=True, constants=LUA)
def read_chain(*, log: Key, heads: Key, subject: str, begin: str, limit: int) -> None:
    """Read events of a subject backwards from the stream id `begin`, or from its last event if that is ""."""


def go_on_below(
    log: Log, shard: int, entries: list[RawEntry], rest: str, most: int, what: str
) -> Step[tuple[list[RawEntry], str]]:
    """Continue in the archive at the stream id `rest`, which the log no longer has; return all, and where to continue.

    Raises PositionLost if that is not archived, or the archive cannot be read.
    """
    floor = yield from read_floor(log, shard)
    position = Position.parse(rest)._replace(shard=shard)
    if position > floor.position:
        raise _not_archived(what, rest)
    more, rest = yield from from_archive(
        log,
        shard,
        f"the event {rest} about {what}",
        lambda past: past.back(shard, floor.origin, position, most - len(entries)),
    )
    return [*entries, *more], rest


def _not_archived(what: str, stream_id: str) -> PositionLost:
    return PositionLost(
        f"{what}: its event {stream_id} is no longer in the log: it was trimmed or deleted without being archived;"
        " restore a backup of the engine"
    )


def walk_chains(log: Log, shard: int, ends: Iterable[str]) -> Step[dict[str, list[AnyEvent]]]:
    """Return, by the stream id of its last event, all events of each chain, oldest first. Raises PositionLost."""
    keys, asked, found = log.keys(shard), list(dict.fromkeys(ends)), dict[str, list[AnyEvent]]()
    for first in range(0, len(asked), _CHAINS):
        some = asked[first : first + _CHAINS]
        replies = yield Call(shard, tuple(_read_from(keys, end, _EVENTS) for end in some))
        chains: list[list[RawEntry]] = []
        below: dict[int, Position] = {}
        for entries, rest in replies:
            walked, at, limit = list[RawEntry](entries), rest.decode(), _EVENTS
            while at and len(entries) == limit:
                limit = _MANY
                ((entries, rest),) = yield Call(shard, (_read_from(keys, at, limit),))
                walked += entries
                at = rest.decode()
            if at:
                below[len(chains)] = Position.parse(at)._replace(shard=shard)
            chains.append(walked)
        if below:
            for number, older in zip(below, (yield from _walk_archived(log, shard, [*below.values()])), strict=True):
                chains[number] += older
        items = iter(decode_items([*chain.from_iterable(chains)], shard))
        for end, walked in zip(some, chains, strict=True):
            events = [item for _, item in islice(items, len(walked)) if isinstance(item, Event)]
            found[end] = events[::-1]
    return found


def _walk_archived(log: Log, shard: int, begins: list[Position]) -> Step[list[list[RawEntry]]]:
    """Return the archived rest of each chain, newest first. Raises PositionLost."""
    floor = yield from read_floor(log, shard)
    for position in begins:
        if position > floor.position:
            raise _not_archived("an observation", position.stream_id)

    def walk(past: Past) -> list[list[RawEntry]]:
        chains: list[list[RawEntry]] = []
        for position in begins:
            entries, rest = past.back(shard, floor.origin, position, _MANY)
            while rest:
                more, rest = past.back(shard, floor.origin, Position.parse(rest)._replace(shard=shard), _MANY)
                entries += more
            chains.append(entries)
        return chains

    return (yield from from_archive(log, shard, f"the event {begins[0].stream_id} about an observation", walk))


def _read_from(keys: ShardKeys, begin: str, limit: int) -> Command:
    return read_chain(log=keys.log, heads=keys.log, subject="", begin=begin, limit=limit)  # it reads no head


def events_of(entries: Sequence[RawEntry], shard: int) -> list[AnyEvent]:
    """Return the events of raw entries; leave out entries that are no events. Raises CodeTooOld."""
    return [item for _, item in decode_items(entries, shard) if isinstance(item, Event)]
