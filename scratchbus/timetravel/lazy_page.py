"""A page long ago: observations open then are in memory, from the nearest snapshot; others are folded on read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from scratchbus.commands.read import Reads
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step, ask
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.stored_documents import decode_observations
from scratchbus.projections.filters import Filter, matching
from scratchbus.projections.page_in_memory import PageInMemory
from scratchbus.projections.scratch_page import as_observation
from scratchbus.projections.stored_observation import StoredObservation
from scratchbus.readmodel import snapshots
from scratchbus.readmodel.history import histories_of
from scratchbus.readmodel.published_statuses import status_classes
from scratchbus.readmodel.scope import Core
from scratchbus.timetravel.cut import Cut
from scratchbus.timetravel.fold_page import Documents, FoldedPage, OpenSnapshotCollector, apply, fold_events


@dataclass(slots=True)
class LazyPage(FoldedPage):
    """A past page of which at least the open observations are in memory; `fold` builds the whole page, slowly."""

    core: Core
    names: PageKeys
    cut: Cut
    fold: Callable[[], Step[Reads]]
    folded: Reads | None = None

    def get(self, ids: list[str]) -> Step[dict[str, Observation]]:
        """See `Reads`."""
        found = {id: self.in_memory.get(id) for id in ids}
        missing = [id for id, each in found.items() if each is None]
        if missing and (yield from _are_damaged(self.core.log, self.names, missing)):
            return (yield from (yield from self._folded()).get(ids))
        documents = yield from read_closed(self.core.log, self.page, self.cut.position, missing)
        closed = PageInMemory(documents.values(), self.cut.ms)
        return {id: each for id in ids if (each := found[id] or closed.get(id)) is not None}

    def search(self, criteria: Filter, limit: int | None, below_seq: int | None) -> Step[list[Observation]]:
        """See `Reads`."""
        if criteria.is_open or (criteria.status and (yield from self._are_open(criteria.status))):
            return matching(self.in_memory, criteria, limit, below_seq)
        return (yield from (yield from self._folded()).search(criteria, limit, below_seq))

    def _are_open(self, statuses: Iterable[str]) -> Step[bool]:
        """Return whether these statuses are open, and always were: then no closed observation has had one of them."""
        classes = (yield from status_classes(self.core)) or {}
        return all(classes.get(status) == {"open"} for status in statuses)

    def _folded(self) -> Step[Reads]:
        if self.folded is None:
            self.folded = yield from self.fold()
        return self.folded


def read_open(
    core: Core,
    names: PageKeys,
    cut: Cut,
    base: tuple[Position, list[StoredObservation]],
    erased: int,
    fold: Callable[[], Step[Reads]],
) -> Step[LazyPage]:
    """Return a page at a moment, from the observations open at an earlier one.

    `erased` is the number of events that were erased before those were read: see `snapshots.store`. Raises
    PositionLost, LogRewound, LogGap or CodeTooOld.
    """
    log, (start, open_observations) = core.log, base
    documents: Documents = {each.id: each for each in open_observations}
    reopened: set[str] = set()
    (cursor,) = yield from cursors(log, start, [names.page])
    collector = OpenSnapshotCollector()
    yield from fold_events(log, names.page, cursor, cut.position, documents, collector=collector, reopened=reopened)
    if not reopened:  # snapshots written during the fold lack them
        yield from snapshots.store_open(log.keys(start.shard), names, collector.snapshots, erased)
    documents |= yield from read_closed(log, names.page, cut.position, reopened)
    return LazyPage(names.page, PageInMemory(documents.values(), cut.ms), core, names, cut, fold)


def read_closed(log: Log, page: str, until: Position, ids: Iterable[str]) -> Step[dict[str, Observation]]:
    """Fold the histories of observations, up to a position. Raises PositionLost."""
    documents: Documents = {}
    for event in chain.from_iterable((yield from histories_of(log, page, [*ids]))):
        if event.position <= until:
            apply(documents, event)
    return {id: as_observation(each) for id, each in documents.items()}


def _are_damaged(log: Log, names: PageKeys, ids: list[str]) -> Step[bool]:
    """Return whether one of these is damaged: its history may lack the event that damaged it."""
    rows = yield from ask(log.shard(names.page), "HMGET", names.docs, *ids)
    return any(document.damaged for document in decode_observations(rows))
