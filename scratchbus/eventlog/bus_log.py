"""A bus's log as one process knows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.retry_limits import RECOVERY_SECONDS
from scratchbus.engine.scripts import Prefix
from scratchbus.engine.steps import Step, ask
from scratchbus.eventlog import ids
from scratchbus.eventlog.append_script import ADD, ADD_BATCH, displaced_body
from scratchbus.eventlog.archived import Past
from scratchbus.eventlog.keys import ShardKeys, shard_of
from scratchbus.eventlog.layouts import read_last

if TYPE_CHECKING:
    from scratchbus.eventlog.index_tables import Table

MOST_PAGES = 10_000
"""The number of pages whose keys, and way of adding, are remembered."""


class PageOfLog(NamedTuple):
    """The keys of a page's shard, and the page's own keys that do not belong to a build of the state."""

    keys: ShardKeys
    heads: str
    open: str
    dedupe: str


class Prefixes(NamedTuple):
    """The beginnings of the commands that add observations: one, several as a batch each, or several as one batch."""

    one: Prefix
    each: Prefix
    all: Prefix


@dataclass
class Log:
    """A bus's log as one process knows it: its name, its shards, and how far each was seen to reach.

    `is_spread`: the shards are on several servers, so that no call may touch two of them. `past` reads trimmed events,
    if an archive is set. `bounds` are the bounds that new event ids end in: how far a log reached up to 10 s ago.
    `owner` is the owner token of the claims made here. `first` is where each log ended before the first write from
    here. `lone` describes the last append to a shard that wrote no other events: its time, its first and last seq.
    Additions to `crowded` pages are not joined, and those to `unusual` ones go to the append script, each until a time
    of `time.monotonic`. `tables` are those of the index of what is paged out that were read last, by their SHA-256.
    """

    bus: str
    shards: int
    by: str
    owner: str
    id_days: int
    replicas: int
    replica_ms: int
    is_spread: bool
    past: Past | None
    patience: float = RECOVERY_SECONDS
    seen: dict[int, str] = field(default_factory=dict)
    first: dict[int, str] = field(default_factory=dict)
    origin: str = field(default_factory=lambda: token_hex(8))
    bounds: dict[int, str] = field(default_factory=dict)
    lone: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    crowded: dict[str, float] = field(default_factory=dict)
    unusual: dict[str, float] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    @cached_property
    def keys(self) -> Callable[[int], ShardKeys]:
        """Returns the keys of a shard, made on first use."""
        return cache(partial(ShardKeys, self.bus))

    @cached_property
    def page(self) -> Callable[[str], PageOfLog]:
        """Returns the keys of a page, made on first use."""
        return lru_cache(MOST_PAGES)(self._page)

    def _page(self, page: str) -> PageOfLog:
        keys = self.keys(self.shard(page))
        return PageOfLog(keys, keys.heads(page), keys.open(page), keys.dedupe(page))

    @cached_property
    def additions(self) -> Callable[[str, int, str], Prefixes]:
        """Returns the beginnings of the commands that add observations to a page, by room and `on_full`."""
        return lru_cache(MOST_PAGES)(self._additions)

    def _additions(self, page: str, room: int, on_full: str) -> Prefixes:
        keys, heads, open, _ = self._page(page)
        displaced = displaced_body(self.by) if on_full == "displace" else ""
        names = {"log": keys.log, "tail": keys.tail, "pages": keys.pages, "heads": heads, "open": open, "ids": keys.ids}
        return Prefixes(
            Prefix(ADD(**names, page=page, room=room, displaced=displaced)),
            Prefix(ADD_BATCH(**names, page=page, room=room, mode="each")),
            Prefix(ADD_BATCH(**names, page=page, room=room, mode="all")),
        )

    def shard(self, page: str) -> int:
        """Return the shard of a page."""
        return shard_of(page, self.shards)

    def is_lone(self, position: Position) -> bool:
        """Return whether the event there is known to have displaced nothing; False unless it is of the last append."""
        ms, first, last = self.lone.get(position.shard, (0, 0, 0))
        return position.ms == ms and first <= position.seq <= last


def first_end(log: Log, shard: int) -> Step[str]:
    """Return the stream id that a shard's log ended with before the first write from here."""
    if shard not in log.first:
        yield from reach(log, shard)
    return log.first[shard]


def reach(log: Log, shard: int) -> Step[str]:
    """Return the stream id that a shard's log ends with now; called before the first write from here."""
    tail = yield from ask(shard, "GET", log.keys(shard).tail)
    seen = read_last(tail, shard)[0].stream_id
    log.bounds[shard], log.seen[shard] = (
        ids.bound(seen),
        seen,
    )  # in this order: another thread reads `seen` first
    log.first.setdefault(shard, seen)
    return seen


def fresh_id(log: Log, page: str) -> Step[str]:
    """Return a new event id whose end is known before the append, so that other ids can derive from it."""
    shard = log.page(page).keys.shard
    if shard not in log.bounds:
        yield from reach(log, shard)
    return next(ids.words) + log.bounds[shard]
