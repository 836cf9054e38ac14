"""List a page: the observations in its indexes, merged with paged-out ones, which are folded again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from scratchbus.domain.observation import Observation
from scratchbus.domain.values import millis
from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, read_checkpoint
from scratchbus.eventlog.index_tables import (
    RANGE,
    PagedOut,
    Table,
    TableName,
    entries_in,
    load_table,
    table_names,
    trait,
)
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.eventlog.stored_documents import decode_stored
from scratchbus.projections.filters import Filter
from scratchbus.projections.scratch_page import as_observation, settled_all
from scratchbus.readmodel.freshness import Freshness
from scratchbus.readmodel.page_query import query_page
from scratchbus.readmodel.query_result import PastState

_SCAN = 200  # documents a scan reads at once
_RANGES, _MIN_DOCUMENTS, _MAX_DOCUMENTS = 16, 8, 200  # ranges read at once; documents folded at once
_TRIES = 5  # while others page observations in or out


def search(
    log: Log,
    page: str,
    freshness: Freshness,
    wanted: Filter,
    limit: int | None,
    below: int | None,
    earlier: PastState | None = None,
    *,
    tries: int = _TRIES,
) -> Step[list[Observation]]:
    """Return the matching observations, newest first by when they were added, only those added before the seq `below`.

    Searches again while others page observations in or out. Raises PositionLost for a paged-out one whose events are in
    an archive that cannot be read.
    """
    bound = "" if below is None else str(below)
    by_status = wanted.status is not None and earlier is None  # the heads only have the current status
    statuses = f",{','.join(wanted.status or ())}," if by_status else ""
    source = f',"{wanted.source}",' if wanted.source is not None else ""
    is_scan = any(each is not None for each in (wanted.text, wanted.context, wanted.metadata, wanted.confidence))
    since = millis(wanted.since) if wanted.since is not None else 0
    ceiling, collected, local_fold, walk = below, list[Observation](), None, None

    def keys_of(names: PageKeys) -> list[str]:
        return [names.index(*index) for index in wanted.indexes()]

    while limit is None or len(collected) < limit:
        ask_for = _SCAN if limit is None or is_scan else max(1, limit - len(collected))
        arguments = "list", ask_for, bound, statuses, source
        result = yield from query_page(
            log, page, freshness, *arguments, keys_of=keys_of, local_fold=local_fold, earlier=earlier
        )
        local_fold, found = result.local_fold, decode_stored(result.rows)
        if walk is None and result.checkpoint.is_paged and not (wanted.waiting or wanted.is_open):
            walk = yield from _begin_walk(log, page, result.checkpoint, wanted)
            if walk.checkpoint != result.checkpoint:
                continue  # an observation may have been paged in or out between the two
        floor = int(float(result.below)) if result.below and not result.is_end else 0
        newer = [
            document
            for document in result.overlay.values()
            if document is not None
            and document.added_seq >= floor
            and (ceiling is None or document.added_seq < ceiling)
        ]
        first = [document for document in found if document.id not in result.overlay]
        merged = sorted([*first, *newer], key=lambda document: -document.added_seq) if newer else first
        batch = [*map(as_observation, filter(wanted.matches, settled_all(merged, result.now)))]
        if walk is not None and not walk.is_empty:
            remaining = None if limit is None else limit - len(collected)
            shown = result.overlay.keys() | {document.id for document in first}
            older = yield from walk.between(
                floor, ceiling, remaining, [document.added_seq for document in batch], shown
            )
            batch = sorted([*batch, *older], key=lambda document: -document.added_seq)
        collected += batch
        if result.is_end or (merged and merged[-1].added_ms < since):
            break
        bound, ceiling = result.below, floor
    if tries > 1 and walk is not None and not (yield from walk.holds()):
        return (yield from search(log, page, freshness, wanted, limit, below, earlier, tries=tries - 1))
    return collected if limit is None else collected[:limit]


@dataclass(slots=True)
class _Walk:
    """The paged-out observations of a page that may match, newest first, as of a checkpoint.

    `state` is what its index had in the fields of which each change of the index changes one.
    """

    log: Log
    names: PageKeys
    checkpoint: Checkpoint
    wanted: Filter
    state: list[bytes | None]
    ranges: list[int]
    tables: list[TableName]
    has_status: bool
    _read: dict[int, list[PagedOut]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not ((self.ranges or self.tables) and self.has_status)

    def holds(self) -> Step[bool]:
        """Return whether none was paged in or out, and no entries left the engine, since."""
        return bool(self.state == (yield from ask_all(self.checkpoint.position.shard, _state_of(self.names))))

    def between(
        self, low: int, high: int | None, limit: int | None, other_seqs: Sequence[int], shown: Collection[str]
    ) -> Step[list[Observation]]:
        """Return the matching ones that were added from one `seq` on and below another, newest first.

        With a limit, return only as many as are needed besides the others, whose seqs are known. Those in `shown` are
        known already.
        """
        collected: list[Observation] = []
        shard = self.checkpoint.position.shard
        since = millis(self.wanted.since) if self.wanted.since is not None else 0
        size = _MAX_DOCUMENTS if limit is None else max(_MIN_DOCUMENTS, min(_MAX_DOCUMENTS, limit))
        entries: list[PagedOut] = []
        ranges = _Ranges(self, low, high)
        while (number := (yield from ranges.next())) is not None:
            if number not in self._read:
                yield from self._read_ranges(ranges.following(number), ranges.loaded)
            entries += [
                entry for entry in self._read[number] if low <= entry.added and (high is None or entry.added < high)
            ]
            while len(entries) >= size or (entries and ranges.is_end):
                batch, entries = entries[:size], entries[size:]
                found = yield from paged_out.rebuild(self.log, shard, batch)
                collected += [each for each in found if each.id not in shown and self.wanted.matches(each)]
                last = batch[-1].added
                if limit is not None and len(collected) + sum(added > last for added in other_seqs) >= limit:
                    return collected
                if since and batch[-1].ms < since:
                    return collected  # it was added before that, as were the following ones
        return collected

    def _read_ranges(self, numbers: Sequence[int], tables: Sequence[Table]) -> Step[None]:
        """Read the entries of some ranges, in the engine and in tables, newest first."""
        rows = yield from ask(self.checkpoint.position.shard, "HMGET", self.names.places, *numbers)
        must, one_of = _traits(self.wanted)
        self._read.clear()
        for number, row in zip(numbers, rows, strict=True):
            latest: dict[int, PagedOut] = {}
            for table in reversed(tables):
                latest |= {entry.added: entry for entry in table.entries(number * RANGE, (number + 1) * RANGE)}
            latest |= entries_in(row)
            self._read[number] = [
                entry
                for entry in sorted(latest.values(), reverse=True)
                if entry.seq
                and entry.traits & must == must
                and (not one_of or any(entry.traits & bits == bits for bits in one_of))
            ]


class _Ranges:
    """The ranges between two `seq`s that have entries, highest first; tables are loaded when the walk reaches them."""

    def __init__(self, walk: _Walk, low: int, high: int | None) -> None:
        self._walk = walk
        self._lowest, self._highest = low // RANGE, None if high is None else (high - 1) // RANGE
        self._unread = [each for each in walk.ranges if self._is_within(each)]
        self._tables = sorted(
            (each for each in walk.tables if each.last >= low and (high is None or each.first < high)),
            key=lambda each: each.last,
        )
        self._loaded: dict[TableName, Table] = {}

    @property
    def is_end(self) -> bool:
        """Whether the last range was returned."""
        return not (self._unread or self._tables)

    @property
    def loaded(self) -> list[Table]:
        """The tables that may have entries of the last range returned, newest first."""
        return [self._loaded[name] for name in sorted(self._loaded, reverse=True)]

    def next(self) -> Step[int | None]:
        """Return the next range; None if there is none."""
        while self._tables and (not self._unread or self._tables[-1].last // RANGE >= self._unread[0]):
            name = self._tables.pop()
            table = yield from load_table(self._walk.log, self._walk.checkpoint.position.shard, name)
            self._loaded[name] = table
            self._unread = sorted({*self._unread, *filter(self._is_within, table.ranges())}, reverse=True)
        if not self._unread:
            return None
        self._loaded = {name: table for name, table in self._loaded.items() if name.first // RANGE <= self._unread[0]}
        return self._unread.pop(0)

    def following(self, number: int) -> list[int]:
        """Return a range and some of those after it, above those of the next table."""
        bound = self._tables[-1].last // RANGE if self._tables else -1
        return [number, *(each for each in self._unread[: _RANGES - 1] if each > bound)]

    def _is_within(self, number: int) -> bool:
        return self._lowest <= number and (self._highest is None or number <= self._highest)


def _begin_walk(log: Log, page: str, checkpoint: Checkpoint, wanted: Filter) -> Step[_Walk]:
    shard = checkpoint.position.shard
    keys = log.keys(shard)
    names = keys.page(page, checkpoint.build)
    *state, fields, tables = yield from ask_all(
        shard, [*_state_of(names), ("HKEYS", names.places), ("HGETALL", names.tables)]
    )
    checkpoint_now = yield from read_checkpoint(keys)
    statuses = {text_of(name)[1:] for name in fields if name.startswith(b"=")}
    has_status = wanted.status is None or not wanted.status.isdisjoint(statuses)
    numbers = sorted((int(name) for name in fields if name.isdigit()), reverse=True)
    return _Walk(log, names, checkpoint_now, wanted, state, numbers, table_names(tables), has_status)


def _state_of(names: PageKeys) -> list[Command]:
    """Return the reads of the fields of which one changes when an observation is paged in or out."""
    return [("HGET", names.places, "moves"), ("HGET", names.tables, "kept")]


def _traits(wanted: Filter) -> tuple[int, list[int]]:
    """Return the traits that all matching ones have, and those of which they have at least one."""
    must = 0
    for name in ("type", "owner", "source"):
        if (value := getattr(wanted, name)) is not None:
            must |= trait(name, value)
    for tag in wanted.tags:
        must |= trait("tag", tag)
    return must, [trait("status", status) for status in wanted.status or ()]
