"""Past pages: the cheapest way to build one, and its reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

from scratchbus.commands.observations import not_found
from scratchbus.commands.read import Reads, StoredPage
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import START, Position
from scratchbus.domain.time_checks import as_when
from scratchbus.domain.values import check_id, check_source, moment
from scratchbus.engine.steps import Step, ask, ask_all, batches
from scratchbus.errors import InvalidSource, shown
from scratchbus.eventlog.archive_protocol import EVENTS_LOST
from scratchbus.eventlog.below_floor import Floor
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.gaps import count_all_erased
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.positions import count_positions
from scratchbus.eventlog.stored_documents import decode_observations
from scratchbus.projections.filters import Filter
from scratchbus.projections.page_in_memory import PageInMemory
from scratchbus.projections.source_exclusion import SourceExclusion
from scratchbus.readmodel import snapshots
from scratchbus.readmodel.history import history
from scratchbus.readmodel.rebuild import Progress
from scratchbus.readmodel.scope import Core
from scratchbus.timetravel.cut import Cut, When, cut_at
from scratchbus.timetravel.fold_page import Documents, FoldedPage, fold_page
from scratchbus.timetravel.lazy_page import read_open
from scratchbus.timetravel.undo import Known, UndoneEvents, changed_since, states_before
from scratchbus.timetravel.what_if import fold_without

CHEAP_EVENTS = 1_000
"""Up to this many events are undone rather than folded: unchanged observations are then read only on demand."""

MAX_UNDONE = 10_000
"""More events are never undone: folding costs more once, but writes snapshots that make the next fold short."""

UNDO_COST = 8
"""The cost of undoing an event, relative to folding one."""

_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class PastReads:
    """A page at a moment, or as it would have been without the events that `exclusion` leaves out."""

    core: Core
    reads: Reads
    when: When
    cut: Cut
    exclusion: SourceExclusion | None = None

    def history(self, id: str) -> Step[list[AnyEvent]]:
        """Return the events about an observation up to then, oldest first. Raises NotFound, PositionLost."""
        id = check_id(id)
        events = yield from history(self.core.log, self.reads.page, id)
        found = [
            event
            for event in events
            if event.position <= self.cut.position
            and not (self.exclusion and self.exclusion.has_left_out(event.position))
        ]
        if not found:
            raise not_found(self.reads.page, id)
        return found

    def everything(self) -> Step[list[Observation]]:
        """Return everything that was on the page."""
        return self.reads.search(Filter(), None, None)


class PastMoment:
    """The identity of a past page: its name, and the moment."""

    def __init__(self, past: PastReads) -> None:
        self._past = past

    def __repr__(self) -> str:
        exclusion = self._past.exclusion
        without = f", without {', '.join(sorted(exclusion.sources))}" if exclusion else ""
        at = f"{self.at:%Y-%m-%dT%H:%M:%S.%f}Z"
        return f"<{type(self).__name__} {self.name!r} at {at}, position {self.position}{without}>"

    @property
    def name(self) -> str:
        """The name of the page."""
        return self._past.reads.page

    @property
    def position(self) -> Position:
        """The last event on the shard of the page at that moment."""
        return self._past.cut.position

    @property
    def at(self) -> datetime:
        """The moment (UTC) that decides what had expired."""
        return moment(self._past.cut.ms)


def as_of(
    core: Core, page: str, when: When, without_sources: str | Collection[str], progress: Progress | None
) -> Step[PastReads]:
    """Return a page at a moment, or as it would have been without some sources. Raises the errors of `cut_at`."""
    sources, when = _sources(without_sources), as_when(when)  # "10m ago" would be another moment for the next page
    cut = yield from cut_at(core, page, when)
    if not sources:
        return PastReads(core, (yield from read_past(core, page, cut, progress)), when, cut)
    exclusion = SourceExclusion(sources)
    documents = yield from fold_without(core.log, page, cut, exclusion, progress)
    return PastReads(core, _folded_page(page, documents, cut), when, cut, exclusion)


def _sources(names: str | Collection[str]) -> frozenset[str]:
    """Return the sources to leave out, given as a list or one name. Raises InvalidSource."""
    if not isinstance(names, Collection):
        raise InvalidSource(f"without_sources: {shown(names)} is not a list of sources")
    return frozenset(check_source(each, "without_sources") for each in ([names] if isinstance(names, str) else names))


def _folded_page(page: str, documents: Documents, cut: Cut) -> FoldedPage:
    return FoldedPage(page, PageInMemory(documents.values(), cut.ms))


def read_past(core: Core, page: str, cut: Cut, progress: Progress | None) -> Step[Reads]:
    """Go back from now, or forward from a snapshot or the beginning, whichever costs less."""
    log, end = core.log, cut.position
    if not end.seq:
        return _folded_page(page, {}, cut)
    keys = log.keys(end.shard)
    checkpoint = yield from read_checkpoint(keys)
    tail, floor, origin = yield from ask_all(end.shard, [("GET", key) for key in (keys.tail, keys.floor, keys.origin)])
    log_end, archived = end_of(tail, end.shard), Floor.parse(floor, origin, end.shard).position
    names = keys.page(page, checkpoint.build)
    in_log, indexed = yield from count_positions(end.shard, names.positions, end)
    events = _PageEvents.of(names, indexed, archived, checkpoint.position, log_end)
    events_before = events.estimate(in_log, end)
    events_after = events.total - events_before
    read_whole = partial(_read_whole, core, names, cut, log_end, events, events_before, progress)
    if events_after * UNDO_COST <= CHEAP_EVENTS:
        return (yield from read_whole())
    erased = yield from count_all_erased(keys)
    snapshot = yield from snapshots.nearest_open(keys, names, end)
    if snapshot is None:
        return (yield from read_whole())
    snapshot_events = yield from events.until(snapshot[0])
    if events_after * UNDO_COST <= events_before - snapshot_events and events_after <= MAX_UNDONE:
        return (yield from read_whole())
    return (yield from read_open(core, names, cut, snapshot, erased, read_whole))


def _read_whole(
    core: Core,
    names: PageKeys,
    cut: Cut,
    log_end: Position,
    events: _PageEvents,
    events_before: int,
    progress: Progress | None,
) -> Step[Reads]:
    """Return the whole page; `events_before` are its events up to the moment."""
    log, page, end = core.log, names.page, cut.position
    base = yield from snapshots.nearest(log.keys(end.shard), names, end)
    start = base.position if base else START
    snapshot_events = (yield from events.until(start)) if base else 0
    max_cost = max(CHEAP_EVENTS, events_before - snapshot_events + (base.documents if base else 0))
    if events.total - events_before <= min(max_cost, MAX_UNDONE):
        undone = yield from _undo_later(core, names, cut, log_end, max_cost)
        if undone is not None:
            return undone
    in_archive = events.archived_until(end) - events.archived_until(start)  # and read there by the page's index
    in_log = events_before - snapshot_events - in_archive
    share = in_log / max(1, end.seq - start.seq) if events.share else 0.0
    return _folded_page(page, (yield from fold_page(log, names, cut, base, share, progress)), cut)


class _PageEvents(NamedTuple):
    """How many events a page has. The history index has those in the log, up to `folded`; the others are estimated.

    `share` is the page's share of the events in the log, and taken for that of the events up to `archived`; if it is 0,
    they may all be the page's, and so may those after `folded`.
    """

    names: PageKeys
    archived: Position
    folded: Position
    share: float
    total: int

    @classmethod
    def of(cls, names: PageKeys, indexed: int, archived: Position, folded: Position, log_end: Position) -> _PageEvents:
        """Return the number of events of a page of which so many are indexed."""
        share = min(1.0, indexed / max(1, folded.seq - archived.seq))
        events = cls(names, archived, folded, share, 0)
        return events._replace(total=events.estimate(indexed, log_end))

    def estimate(self, indexed: int, until: Position) -> int:
        """Return how many there are up to a position, up to which so many are indexed."""
        return indexed + self.archived_until(until) + max(0, until.seq - self.folded.seq)

    def archived_until(self, position: Position) -> int:
        """Return how many archived ones there are up to a position, as estimated."""
        return int((self.share or 1.0) * min(self.archived.seq, position.seq))

    def until(self, position: Position) -> Step[int]:
        """Return how many there are up to a position."""
        indexed, _ = yield from count_positions(position.shard, self.names.positions, position)
        return self.estimate(indexed, position)


def _undo_later(core: Core, names: PageKeys, cut: Cut, log_end: Position, max_cost: int) -> Step[StoredPage | None]:
    """Undo later events; return None if there are too many, or if they do not record their predecessors."""
    log, page = core.log, names.page
    (cursor,) = yield from cursors(log, cut.position, [page])
    max_events = min(max_cost, MAX_UNDONE)
    changed = yield from changed_since(log, page, cursor, log_end, max_events)
    if not changed.is_linked or changed.events > max_events:
        return None
    older = [id for id, before in changed.before.items() if before]
    cost = changed.events
    for batch in batches(older, _AT_ONCE):
        rows = yield from ask(log_end.shard, "HMGET", names.docs, *batch)
        documents = decode_observations([row for row in rows if row])
        cost += sum(document.version for document in documents)
        if cost > max_cost or any(document.damaged for document in documents):
            return None  # the chain of a damaged document may lack the event that damaged it
    try:
        states = yield from states_before(log, page, changed.before)
    except EVENTS_LOST:
        return None  # events are gone; a snapshot may still hold the state
    return StoredPage(log, page, core.fresh, UndoneEvents(cut.ms, Known(changed.cursor, states)))
