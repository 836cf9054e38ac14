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
from scratchbus.eventlog.archive_protocol import LogArchive
from scratchbus.eventlog.keys import ShardKeys, shard_of
from scratchbus.eventlog.layouts import read_last

if TYPE_CHECKING:
    from scratchbus.eventlog.index_tables import Table

MAX_PAGES = 10_000
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

    `is_spread`: the shards are on several servers, so that no call may touch two of them. `archive` has the trimmed
    events, if one is set. `known_ends` are the ends of the logs as last seen, `first_ends` those before the first write
    from here. `id_bounds` are the bounds that new event ids end in: how far a log reached up to 10 s ago. `owner` is
    the owner token of the claims made here. `last_plain_append` describes the last append to a shard that displaced
    nothing: its time, its first and its last seq. Additions to `unjoined_pages` are not joined with others, and those
    to `guarded_pages` go to the append script, each until a time of `time.monotonic`. `tables` are those of the index
    of paged-out observations that were read last, by their SHA-256.
    """

    bus: str
    shards: int
    by: str
    owner: str
    id_days: int
    replicas: int
    replica_ms: int
    is_spread: bool
    archive: LogArchive | None
    patience: float = RECOVERY_SECONDS
    known_ends: dict[int, str] = field(default_factory=dict)
    first_ends: dict[int, str] = field(default_factory=dict)
    origin: str = field(default_factory=lambda: token_hex(8))
    id_bounds: dict[int, str] = field(default_factory=dict)
    last_plain_append: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    unjoined_pages: dict[str, float] = field(default_factory=dict)
    guarded_pages: dict[str, float] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    @cached_property
    def keys(self) -> Callable[[int], ShardKeys]:
        """Returns the keys of a shard, made on first use."""
        return cache(partial(ShardKeys, self.bus))

    @cached_property
    def page(self) -> Callable[[str], PageOfLog]:
        """Returns the keys of a page, made on first use."""
        return lru_cache(MAX_PAGES)(self._page)

    def _page(self, page: str) -> PageOfLog:
        keys = self.keys(self.shard(page))
        return PageOfLog(keys, keys.heads(page), keys.open(page), keys.dedupe(page))

    @cached_property
    def additions(self) -> Callable[[str, int, str], Prefixes]:
        """Returns the beginnings of the commands that add observations to a page, by room and `on_full`."""
        return lru_cache(MAX_PAGES)(self._additions)

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

    def displaced_nothing(self, position: Position) -> bool:
        """Return whether the event there is known to have displaced nothing; False unless it is of the last append."""
        ms, first, last = self.last_plain_append.get(position.shard, (0, 0, 0))
        return position.ms == ms and first <= position.seq <= last


def first_end(log: Log, shard: int) -> Step[str]:
    """Return the stream id that a shard's log ended with before the first write from here."""
    if shard not in log.first_ends:
        yield from read_end(log, shard)
    return log.first_ends[shard]


def read_end(log: Log, shard: int) -> Step[str]:
    """Return the stream id that a shard's log ends with now; called before the first write from here."""
    tail = yield from ask(shard, "GET", log.keys(shard).tail)
    end = read_last(tail, shard)[0].stream_id
    log.id_bounds[shard] = ids.id_bound(end)  # first: another thread looks for the end first
    log.known_ends[shard] = end
    log.first_ends.setdefault(shard, end)
    return end


def bounded_event_id(log: Log, page: str) -> Step[str]:
    """Return a new event id whose end is known before the append, so that other ids can derive from it."""
    shard = log.page(page).keys.shard
    if shard not in log.id_bounds:
        yield from read_end(log, shard)
    return next(ids.words) + log.id_bounds[shard]
