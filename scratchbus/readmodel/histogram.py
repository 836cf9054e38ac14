"""The number of events over time: exact counts from a few entries of the log, since `seq` counts without a gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from pydantic import BaseModel

from scratchbus.domain.position import START, Position, in_time
from scratchbus.domain.time_checks import as_time
from scratchbus.domain.values import MAX_SAFE_INTEGER, Moment, check_page, check_whole, millis, moment
from scratchbus.engine.steps import Step, ask, ask_all, batches, side_by_side
from scratchbus.errors import InvalidField
from scratchbus.eventlog.below_floor import entries_at, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.foreign import up_to
from scratchbus.eventlog.gaps import count_erased
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.positions import count_many_positions, read_positions
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_kind, entry_position, text_of

MAX_BUCKETS = 1_000

EXACT = 5_000
"""The most events whose kinds are all counted; of more events, about as many are sampled."""


class Bucket(BaseModel):
    """The events from `at` up to the next bucket. `position` is the first event's, None without events."""

    at: datetime
    position: str | None = None
    count: int = 0
    kinds: dict[str, int] = {}


class Histogram(BaseModel):
    """The events from `since` up to, but not at, `until`, in buckets of the same length; none without any event.

    `first` and `last` are the times of the first and last event in the log. `archived` events before them are only in
    the archive, and are not counted. The counts are exact; with `sampled` the counts of kinds are estimates.
    """

    since: datetime
    until: datetime
    buckets: list[Bucket]
    first: datetime | None
    last: datetime | None
    archived: int
    sampled: bool


class _Ends(NamedTuple):
    """The first and the last event in a shard's log, both without `seq` if there is none; how many are archived."""

    first: Position
    last: Position
    archived: int


_Counted = tuple[list[int], list[Position | None]]


class _ShardCounts(NamedTuple):
    """One shard's events by bucket: their number, the position of the first, and the kinds of those read."""

    counts: list[int]
    firsts: list[Position | None]
    kinds: list[Counter[str]]


def histogram(log: Log, since: Moment | None, until: Moment | None, buckets: int, page: str | None) -> Step[Histogram]:
    """Return the number of events over time, of one page or of all. Raises InvalidInput."""
    check_whole("buckets", buckets, maximum=MAX_BUCKETS)
    shards = range(log.shards) if page is None else [log.shard(check_page(page))]
    times = ("since", since), ("until", until)
    start, end = (None if each is None else millis(as_time(name, each)) for name, each in times)
    logs: dict[int, _Ends] = {}
    for shard in shards:
        logs[shard] = yield from _ends(log, shard)
    non_empty = [each for each in logs.values() if each.last.seq]
    first = min((each.first.ms for each in non_empty), default=None)
    last = max((each.last.ms for each in non_empty), default=None)
    start = start if start is not None else min((each for each in (first, end) if each is not None), default=0)
    end = end if end is not None else max(start, (last or 0) + 1)
    if end < start:
        raise InvalidField("until", f"{moment(end).isoformat()} is before since, {moment(start).isoformat()}")
    edges = _edges(start, end, buckets) if non_empty else [start]
    counted = {}
    for shard in shards:
        counted[shard] = yield from _count(log, logs[shard].last._replace(shard=shard), edges, page)
    total = sum(count for counts, _ in counted.values() for count in counts)
    busy = sum(count > 0 for counts, _ in counted.values() for count in counts)
    sample = total if total <= EXACT else max(1, EXACT // busy)
    shard_counts: list[_ShardCounts] = []
    for counts, firsts in counted.values():
        shard_counts += [_ShardCounts(counts, firsts, (yield from _sample_kinds(log, counts, firsts, sample, page)))]
    return Histogram(
        since=moment(start),
        until=moment(end),
        buckets=[_bucket(shard_counts, at, edge) for at, edge in enumerate(edges[:-1])],
        first=None if first is None else moment(first),
        last=None if last is None else moment(last),
        archived=sum(each.archived for each in non_empty),
        sampled=total > EXACT,
    )


def _edges(start: int, end: int, buckets: int) -> list[int]:
    """Return the beginnings of all buckets, in ms, and the end of the last."""
    buckets = min(buckets, end - start)
    return [start + (end - start) * at // buckets for at in range(buckets)] + [end] if buckets else [start]


def _ends(log: Log, shard: int) -> Step[_Ends]:
    keys = log.keys(shard)
    entries, tail = yield from ask_all(shard, [("XRANGE", keys.log, "-", "+", "COUNT", 1), ("GET", keys.tail)])
    last = end_of(tail, shard)
    entries_in_log = up_to(last, entries)
    if not entries_in_log:
        return _Ends(START, START, 0)
    first = entry_position(entries_in_log[0], shard)
    return _Ends(first, last, first.seq - 1 - (yield from count_erased(keys, 0, first.seq)))


def _count(log: Log, last: Position, edges: Sequence[int], page: str | None) -> Step[_Counted]:
    """Return the number of events in each bucket, and the position of the first, from the ids at the edges."""
    if page is not None:
        return (yield from _count_page(log, last, edges, page))
    shard = last.shard
    keys = log.keys(shard)
    rows = yield from ask_all(
        shard, [*(("XRANGE", keys.log, edge, "+", "COUNT", 1) for edge in edges), ("ZCARD", keys.erased)]
    )
    firsts = [entry_position(in_log[0], shard) if (in_log := up_to(last, row)) else None for row in rows[:-1]]
    seqs = [each.seq if each else last.seq + 1 for each in firsts]
    counts = [after - before for before, after in pairwise(seqs)]
    if rows[-1] and counts:
        erased_counts = yield from ask_all(
            shard, [("ZCOUNT", keys.erased, before, after - 1) for before, after in pairwise(seqs)]
        )
        counts = [count - erased for count, erased in zip(counts, erased_counts, strict=True)]
    return counts, [each if count else None for each, count in zip(firsts, counts, strict=False)]


def _count_page(log: Log, last: Position, edges: Sequence[int], page: str) -> Step[_Counted]:
    """Return the same for one page, from its history index and the unfolded events."""
    shard, keys = last.shard, log.keys(last.shard)
    while True:
        folded, floor = (yield from read_checkpoint(keys)), (yield from read_floor(log, shard))
        key = keys.page(page, folded.build).positions
        counted = yield from _count_until(shard, key, edges, min(folded.position, last))
        # a rebuild removes the index, and an archiver its beginning
        build = (yield from read_checkpoint(keys)).build
        if build == folded.build and (yield from read_floor(log, shard)) == floor:
            break
    until = min(last, Position(edges[-1] - 1, MAX_SAFE_INTEGER, shard))
    unfolded = yield from _unfolded(log, folded.position, until, page)  # also those folded meanwhile
    counts, firsts = [], list[Position | None]()
    for at, (before, after) in enumerate(pairwise(counted)):
        added = [position for position in unfolded if edges[at] <= position.ms < edges[at + 1]]
        count = after[0] - before[0]
        counts.append(count + len(added))
        firsts.append(before[1] if count else added[0] if added else None)
    return counts, firsts


def _count_until(
    shard: int, key: str, edges: Sequence[int], until: Position
) -> Step[list[tuple[int, Position | None]]]:
    """Return, for each time, how many events of a page up to a position come before it, and the next one."""
    found: list[tuple[int, Position | None]] = []
    for batch in batches(edges, 250):
        bounds = [(key, min(until, Position(edge - 1, MAX_SAFE_INTEGER))) for edge in batch]
        found += yield from count_many_positions(shard, bounds)
    return found


def _unfolded(log: Log, after: Position, until: Position, page: str) -> Step[list[Position]]:
    """Return the positions of a page's events after the checkpoint, up to another position."""
    reader, is_end = LogReader(log, after, until=until.stream_id, skips_lost=True), after >= until
    found, name = list[Position](), page.encode()
    while not is_end:
        entries, is_end, *_ = yield from reader.read()
        found += [entry_position(entry, after.shard) for entry in entries if entry_fields(entry).get(b"page") == name]
    return found


def _sample_kinds(
    log: Log, counts: Sequence[int], firsts: Sequence[Position | None], sample: int, page: str | None
) -> Step[list[Counter[str]]]:
    """Return the kinds of the first events of each bucket, up to so many of each."""
    kinds = [Counter[str]() for _ in counts]
    samples = [(at, first, min(sample, counts[at])) for at, first in enumerate(firsts) if first is not None]
    for batch in batches(samples, 50):
        rows = yield from side_by_side([_entries_from(log, first, count, page) for _, first, count in batch])
        for (at, _, _), entries in zip(batch, rows, strict=True):
            kinds[at].update(text_of(entry_kind(entry)) for entry in entries)
    return kinds


def _entries_from(log: Log, first: Position, count: int, page: str | None) -> Step[list[RawEntry]]:
    """Return up to `count` entries of a page, or of all pages, from one on."""
    if page is None:
        found: list[RawEntry] = yield from ask(
            first.shard, "XRANGE", log.keys(first.shard).log, first.stream_id, "+", "COUNT", count
        )
        return found
    return (yield from entries_at(log, (yield from _page_positions(log, first, count, page))))


def _page_positions(log: Log, first: Position, count: int, page: str) -> Step[list[Position]]:
    """Return up to `count` positions of a page's events, from one on."""
    keys = log.keys(first.shard)
    before = first._replace(seq=first.seq - 1)
    while True:
        folded = yield from read_checkpoint(keys)
        key = keys.page(page, folded.build).positions
        positions = yield from read_positions(first.shard, key, before, count)
        if len(positions) == count or (yield from read_checkpoint(keys)).build == folded.build:
            break  # else a rebuild may have removed the index
    if len(positions) < count:
        last = end_of((yield from ask(first.shard, "GET", keys.tail)), first.shard)
        after = max(folded.position, before, *positions)  # the index may have more than `folded` by now
        positions += yield from _unfolded(log, after, last, page)
    return positions[:count]


def _bucket(shard_counts: Sequence[_ShardCounts], at: int, edge: int) -> Bucket:
    count = sum(shard.counts[at] for shard in shard_counts)
    firsts = [first for shard in shard_counts if (first := shard.firsts[at]) is not None]
    estimates: Counter[str] = Counter()
    for shard in shard_counts:
        sampled = shard.kinds[at].total()
        for kind, number in shard.kinds[at].items():
            estimates[kind] += number * shard.counts[at] / sampled  # type: ignore[assignment]  # rounded below
    return Bucket(
        at=moment(edge),
        position=str(min(firsts, key=in_time)) if firsts else None,
        count=count,
        kinds=_rounded(estimates, count),
    )


def _rounded(estimates: Counter[str], total: int) -> dict[str, int]:
    """Return estimates as whole numbers with this sum; those with the largest fractions are rounded up."""
    rounded = {kind: int(number) for kind, number in sorted(estimates.items())}
    remainder = total - sum(rounded.values())
    for kind in sorted(rounded, key=lambda kind: rounded[kind] - estimates[kind])[: max(0, remainder)]:
        rounded[kind] += 1
    return rounded
