"""Walk the events of one subject backwards, each of which names the previous one, in the log and then the archive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scratchbus.domain.events import AnyEvent, Event
from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Command, Key, lua_script
from scratchbus.engine.steps import Call, Step
from scratchbus.errors import PositionLost
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
        raise PositionLost(
            f"{what}: its event {rest} is no longer in the log: it was trimmed or deleted without being archived;"
            " restore a backup of the engine"
        )
    more, rest = yield from from_archive(
        log,
        shard,
        f"the event {rest} about {what}",
        lambda past: past.back(shard, floor.origin, position, most - len(entries)),
    )
    return [*entries, *more], rest


def walk_chains(log: Log, shard: int, ends: Iterable[str]) -> Step[dict[str, list[AnyEvent]]]:
    """Return, by the stream id of its last event, all events of each chain, oldest first. Raises PositionLost."""
    keys, asked, found = log.keys(shard), list(dict.fromkeys(ends)), dict[str, list[AnyEvent]]()
    for first in range(0, len(asked), _CHAINS):
        some = asked[first : first + _CHAINS]
        replies = yield Call(shard, tuple(_read_from(keys, end, _EVENTS) for end in some))
        for end, (entries, rest) in zip(some, replies, strict=True):
            chain, at, most = list[RawEntry](entries), rest.decode(), _EVENTS
            while at:
                if len(chain) >= most:
                    most += _MANY
                    (reply,) = yield Call(shard, (_read_from(keys, at, _MANY),))
                    chain += reply[0]
                    at = reply[1].decode()
                else:
                    chain, at = yield from go_on_below(log, shard, chain, at, most, "an observation")
            found[end] = events_of(chain, shard)[::-1]
    return found


def _read_from(keys: ShardKeys, begin: str, limit: int) -> Command:
    return read_chain(log=keys.log, heads=keys.log, subject="", begin=begin, limit=limit)  # it reads no head


def events_of(entries: Sequence[RawEntry], shard: int) -> list[AnyEvent]:
    """Return the events of raw entries; leave out entries that are no events. Raises CodeTooOld."""
    return [item for _, item in decode_items(entries, shard) if isinstance(item, Event)]
