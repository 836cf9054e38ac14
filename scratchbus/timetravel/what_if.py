"""A page as it would have been without some sources."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain

from scratchbus.domain.event import Event
from scratchbus.domain.position import in_time
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.position_at import last_until
from scratchbus.eventlog.raw_entries import is_batch_end
from scratchbus.eventlog.reader import read
from scratchbus.projections.source_exclusion import SourceExclusion
from scratchbus.readmodel.rebuild import Progress
from scratchbus.timetravel.cut import Cut
from scratchbus.timetravel.fold_page import Documents, apply


def fold_without(
    log: Log, page: str, cut: Cut, exclusion: SourceExclusion, progress: Progress | None
) -> Step[Documents]:
    """Fold a page's events without those of some sources, and without everything that depends on them.

    It reads the events of all pages up to that moment, by time: evidence may be anywhere. Raises PositionLost,
    LogRewound, LogGap or CodeTooOld.
    """
    home, documents = log.shard(page), Documents()
    ends = {home: cut.position}
    for shard in range(log.shards):
        if shard != home:
            ends[shard] = yield from last_until(log, shard, cut.ms)
    all_cursors = yield from cursors(log, None)
    unsettled: list[list[LogEntry]] = []  # events of the last millisecond: the next read may have more of them
    while pending := [cursor for cursor in all_cursors if cursor.position < ends[cursor.position.shard]]:
        chunks = yield from read(log, pending)
        if not chunks:
            break
        batches = unsettled
        for shard, entries in chunks:
            items = [LogEntry(entry, shard) for entry in entries]
            batches += _batches(item for item in items if item.position <= ends[shard])
        batches.sort(key=lambda batch: in_time(batch[0].position))
        newest = batches[-1][0].position.ms if batches else 0
        split = bisect_left(batches, newest, key=lambda batch: batch[0].position.ms)
        unsettled = batches[split:]
        _fold(exclusion, page, batches[:split], documents)
        if progress is not None:
            folded = (min(cursor.position.seq, ends[cursor.position.shard].seq) for cursor in all_cursors)
            progress(sum(folded), sum(end.seq for end in ends.values()))
    _fold(exclusion, page, unsettled, documents)
    return documents


def _fold(exclusion: SourceExclusion, page: str, batches: list[list[LogEntry]], documents: Documents) -> None:
    """Fold the remaining events of these batches of a page and others."""
    if len({batch[0].position.shard for batch in batches}) > 1:
        _exclude_dependents(exclusion, batches)
    for at, batch in enumerate(batches):
        if not batch[0].is_event:
            LogEntry.decode(chain.from_iterable(batches[at:]))
        for each in _remaining(exclusion, batch):
            if each.page == page:
                apply(documents, each)


def _batches(items: Iterable[LogEntry]) -> Iterator[list[LogEntry]]:
    batch: list[LogEntry] = []
    for item in items:
        batch.append(item)
        if is_batch_end(item.entry):
            yield batch
            batch = []
    if batch:
        yield batch


def _exclude_dependents(exclusion: SourceExclusion, batches: list[list[LogEntry]]) -> None:
    """Judge batches until nothing more is left out: two in one millisecond may depend on each other."""
    events = [[item.event for item in batch if isinstance(item.event, Event)] for batch in batches]
    remaining, previous = sum(map(len, events)), -1
    while remaining != previous:
        previous, remaining = remaining, sum(len(exclusion.keep(batch)) for batch in events)


def _remaining(exclusion: SourceExclusion, batch: list[LogEntry]) -> Iterator[Event | Poison]:
    """Yield the remaining entries of a batch, including invalid ones; these change nothing that is not there."""
    entries = [item.event for item in batch]
    yield from exclusion.keep([each for each in entries if isinstance(each, Event)])
    yield from (each for each in entries if isinstance(each, Poison))
