"""Walk the events of one subject backwards, each of which names the previous one, in the log and then the archive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain as joined
from itertools import islice
from typing import TYPE_CHECKING

from scratchbus.domain.event import Event
from scratchbus.domain.position import START, Position
from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Call, Step, ask, batches
from scratchbus.errors import PositionLost
from scratchbus.eventlog.below_floor import from_archive, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.codec import decode_items
from scratchbus.eventlog.layouts import LUA
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_position, text_of

if TYPE_CHECKING:
    from scratchbus.domain.events import AnyEvent

_CHAINS, _EVENTS, _LONG_READ = 50, 10, 500  # chains walked at once, events read of each, and of one that is longer


@lua_script("eventlog/entries", "eventlog/chains", only_reads=True, constants=LUA)
def read_chain(*, log: Key, heads: Key, subject: str, begin: str, limit: int) -> None:
    """Read events of a subject backwards from the stream id `begin`, or from its last event if that is ""."""


def read_archived(
    log: Log, shard: int, starts: Sequence[str], limit: int, what: str
) -> Step[list[tuple[list[RawEntry], str]]]:
    """Return up to `limit` archived entries of a chain from each of these stream ids back, and the id to continue at.

    Raises PositionLost if one is not archived, or the archive cannot be read; the error says `what` they are about.
    """
    floor = yield from read_floor(log, shard)
    positions = [_position(each, shard) for each in starts]
    for position in positions:
        if position > floor.position:
            raise PositionLost(
                f"{what}: its event {position.stream_id} is no longer in the log: it was trimmed or deleted without"
                " being archived; restore a backup of the engine"
            )
    return (
        yield from from_archive(
            log, shard, f"the event {starts[0]} about {what}",
            lambda archive: archive.back(shard, floor.origin, positions, limit),
        )
    )  # fmt: skip


def walk_chains(
    log: Log, shard: int, ends: Iterable[str], known: Mapping[str, RawEntry] | None = None
) -> Step[dict[str, list[AnyEvent]]]:
    """Return, by the stream id of its last event, all events of each chain, oldest first.

    `known` are entries that need not be read again. Raises PositionLost.
    """
    last_ids = list(dict.fromkeys(ends))
    found: dict[str, list[AnyEvent]] = {}
    first = yield from _first_in_log(log, shard)
    for group in batches(last_ids, _CHAINS):
        chains: list[list[RawEntry]] = []
        next_ids: list[str] = []
        for end in group:
            chain, at = list[RawEntry](), end
            while at and (entry := (known or {}).get(at)) is not None:
                chain.append(entry)
                at = text_of(entry_fields(entry).get(b"prev", b""))
            chains.append(chain)
            next_ids.append(at)
        yield from _walk_log(log, shard, first, chains, next_ids)
        while archived := {number: at for number, at in enumerate(next_ids) if at}:
            older = yield from read_archived(log, shard, [*archived.values()], _LONG_READ, "an observation")
            for number, (entries, next_id) in zip(archived, older, strict=True):
                chains[number] += entries
                next_ids[number] = next_id
        items = iter(decode_items([*joined.from_iterable(chains)], shard))
        for end, chain in zip(group, chains, strict=True):
            events = [item for _, item in islice(items, len(chain)) if isinstance(item, Event)]
            found[end] = events[::-1]
    return found


def _first_in_log(log: Log, shard: int) -> Step[Position]:
    """Return the position of the first entry that may still be in the log."""
    if log.archive is None:
        return START
    entries = yield from ask(shard, "XRANGE", log.keys(shard).log, "-", "+", "COUNT", 1)
    return entry_position(entries[0], shard) if entries else START


def _walk_log(log: Log, shard: int, first: Position, chains: list[list[RawEntry]], next_ids: list[str]) -> Step[None]:
    """Continue chains in the log, at these stream ids, which are changed to those at which the archive continues."""
    keys, limit = log.keys(shard), _EVENTS
    going_on = [number for number, at in enumerate(next_ids) if at and _position(at, shard) >= first]
    while going_on:
        begins = (next_ids[number] for number in going_on)
        commands = [  # they read no head
            read_chain(log=keys.log, heads=keys.log, subject="", begin=each, limit=limit) for each in begins
        ]
        replies = yield Call(shard, tuple(commands))
        longer = []
        for number, (entries, next_id) in zip(going_on, replies, strict=True):
            chains[number] += entries
            next_ids[number] = next_id.decode()
            if next_ids[number] and len(entries) == limit:
                longer.append(number)
        going_on, limit = longer, _LONG_READ


def _position(stream_id: str, shard: int) -> Position:
    return Position.parse(stream_id)._replace(shard=shard)


def events_of(entries: Sequence[RawEntry], shard: int) -> list[AnyEvent]:
    """Return the events of raw entries; leave out entries that are no events. Raises CodeTooOld."""
    return [item for _, item in decode_items(entries, shard) if isinstance(item, Event)]
