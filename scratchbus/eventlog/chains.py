"""Walk the events of one subject backwards, each of which names the previous one, in the log and then the archive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice

from scratchbus.domain.events import AnyEvent, Event
from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Command, Key, lua_script
from scratchbus.engine.steps import Call, Step
from scratchbus.errors import PositionLost
from scratchbus.eventlog.archive_protocol import LogArchive
from scratchbus.eventlog.below_floor import from_archive, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.codec import decode_items
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.layouts import LUA
from scratchbus.eventlog.raw_entries import RawEntry

_CHAINS, _EVENTS, _LONG_READ = 50, 10, 500  # chains walked at once, events read of each, and of one that is longer


@lua_script("eventlog/entries", "eventlog/chains", only_reads=True, constants=LUA)
def read_chain(*, log: Key, heads: Key, subject: str, begin: str, limit: int) -> None:
    """Read events of a subject backwards from the stream id `begin`, or from its last event if that is ""."""


def continue_in_archive(
    log: Log, shard: int, entries: list[RawEntry], next_id: str, limit: int, what: str
) -> Step[tuple[list[RawEntry], str]]:
    """Continue in the archive at the stream id `next_id`, which the log no longer has; return all, and the next id.

    Raises PositionLost if that is not archived, or the archive cannot be read.
    """
    floor = yield from read_floor(log, shard)
    position = Position.parse(next_id)._replace(shard=shard)
    if position > floor.position:
        raise _not_archived(what, next_id)
    archived, next_id = yield from from_archive(
        log,
        shard,
        f"the event {next_id} about {what}",
        lambda archive: archive.back(shard, floor.origin, position, limit - len(entries)),
    )
    return [*entries, *archived], next_id


def _not_archived(what: str, stream_id: str) -> PositionLost:
    return PositionLost(
        f"{what}: its event {stream_id} is no longer in the log: it was trimmed or deleted without being archived;"
        " restore a backup of the engine"
    )


def walk_chains(log: Log, shard: int, ends: Iterable[str]) -> Step[dict[str, list[AnyEvent]]]:
    """Return, by the stream id of its last event, all events of each chain, oldest first. Raises PositionLost."""
    keys, last_ids, found = log.keys(shard), list(dict.fromkeys(ends)), dict[str, list[AnyEvent]]()
    for first in range(0, len(last_ids), _CHAINS):
        group = last_ids[first : first + _CHAINS]
        replies = yield Call(shard, tuple(_read_from(keys, end, _EVENTS) for end in group))
        chains: list[list[RawEntry]] = []
        archived: dict[int, Position] = {}
        for entries, next_id in replies:
            collected, at, limit = list[RawEntry](entries), next_id.decode(), _EVENTS
            while at and len(entries) == limit:
                limit = _LONG_READ
                ((entries, next_id),) = yield Call(shard, (_read_from(keys, at, limit),))
                collected += entries
                at = next_id.decode()
            if at:
                archived[len(chains)] = Position.parse(at)._replace(shard=shard)
            chains.append(collected)
        if archived:
            for number, older in zip(
                archived, (yield from _walk_archived(log, shard, [*archived.values()])), strict=True
            ):
                chains[number] += older
        items = iter(decode_items([*chain.from_iterable(chains)], shard))
        for end, collected in zip(group, chains, strict=True):
            events = [item for _, item in islice(items, len(collected)) if isinstance(item, Event)]
            found[end] = events[::-1]
    return found


def _walk_archived(log: Log, shard: int, starts: list[Position]) -> Step[list[list[RawEntry]]]:
    """Return the archived rest of each chain, newest first. Raises PositionLost."""
    floor = yield from read_floor(log, shard)
    for position in starts:
        if position > floor.position:
            raise _not_archived("an observation", position.stream_id)

    def walk(archive: LogArchive) -> list[list[RawEntry]]:
        chains: list[list[RawEntry]] = []
        for position in starts:
            entries, next_id = archive.back(shard, floor.origin, position, _LONG_READ)
            while next_id:
                more, next_id = archive.back(
                    shard, floor.origin, Position.parse(next_id)._replace(shard=shard), _LONG_READ
                )
                entries += more
            chains.append(entries)
        return chains

    return (yield from from_archive(log, shard, f"the event {starts[0].stream_id} about an observation", walk))


def _read_from(keys: ShardKeys, begin: str, limit: int) -> Command:
    return read_chain(log=keys.log, heads=keys.log, subject="", begin=begin, limit=limit)  # it reads no head


def events_of(entries: Sequence[RawEntry], shard: int) -> list[AnyEvent]:
    """Return the events of raw entries; leave out entries that are no events. Raises CodeTooOld."""
    return [item for _, item in decode_items(entries, shard) if isinstance(item, Event)]
