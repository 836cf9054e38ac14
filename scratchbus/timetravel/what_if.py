"""A page as it would have been without some sources."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain

from scratchbus.domain.events import Event
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.position_at import last_until
from scratchbus.eventlog.raw_entries import is_batch_end
from scratchbus.eventlog.reader import read
from scratchbus.projections.silenced import SourceExclusion
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
    all_places = yield from cursors(log, None)
    held: list[list[LogEntry]] = []  # events of the last millisecond: the next read may have more of them
    while places := [place for place in all_places if place.position < ends[place.position.shard]]:
        chunks = yield from read(log, places)
        if not chunks:
            break
        batches = held
        for shard, entries in chunks:
            items = [LogEntry(entry, shard) for entry in entries]
            batches += _batches(item for item in items if item.position <= ends[shard])
        batches.sort(key=_when)
        last = bisect_left(batches, batches[-1][0].position.ms, key=_ms) if batches else 0
        held = batches[last:]
        _fold(exclusion, page, batches[:last], documents)
        if progress is not None:
            done = (min(place.position.seq, ends[place.position.shard].seq) for place in all_places)
            progress(sum(done), sum(end.seq for end in ends.values()))
    _fold(exclusion, page, held, documents)
    return documents


def _fold(exclusion: SourceExclusion, page: str, batches: list[list[LogEntry]], documents: Documents) -> None:
    """Fold the remaining events of these batches of a page and others."""
    if len({batch[0].position.shard for batch in batches}) > 1:
        _settle(exclusion, batches)
    for at, batch in enumerate(batches):
        if not batch[0].is_event:
            LogEntry.decode(chain.from_iterable(batches[at:]))
        for each in _kept(exclusion, batch):
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


def _when(batch: list[LogEntry]) -> tuple[int, int, int]:
    ms, seq, shard = batch[0].position
    return ms, shard, seq


def _ms(batch: list[LogEntry]) -> int:
    return batch[0].position.ms


def _settle(exclusion: SourceExclusion, batches: list[list[LogEntry]]) -> None:
    """Judge batches until nothing more is left out: two in one millisecond may depend on each other."""
    events = [[item.event for item in batch if isinstance(item.event, Event)] for batch in batches]
    kept, was = sum(map(len, events)), -1
    while kept != was:
        was, kept = kept, sum(len(exclusion.keep(batch)) for batch in events)


def _kept(exclusion: SourceExclusion, batch: list[LogEntry]) -> Iterator[Event | Poison]:
    """Yield the remaining entries of a batch, including invalid ones unless their observation is gone."""
    happened = [item.event for item in batch]
    yield from exclusion.keep([each for each in happened if isinstance(each, Event)])
    for each in happened:
        if isinstance(each, Poison) and not exclusion.is_gone(each.subject):
            yield each
