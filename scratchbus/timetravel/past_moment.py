"""A past moment for relations: its events, and the pages then."""

from __future__ import annotations

from collections.abc import Mapping

from scratchbus.commands import trace
from scratchbus.commands.bus_state import BusState
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.trace import Consequences
from scratchbus.engine.steps import Step
from scratchbus.readmodel.relations import find_archived_pages, find_pages, ids_by_page
from scratchbus.timetravel.cut import cut_at
from scratchbus.timetravel.past import PastReads, as_of


class PastPages(BusState):
    """The pages of a bus at the moment of a past page; each is read on demand."""

    def __init__(self, past: PastReads) -> None:
        super().__init__(past.core)
        self._past = past
        self._pages = {past.reads.page: past}
        self._ends = {past.cut.position.shard: past.cut.position}

    def history(self, page: str, id: str) -> Step[list[AnyEvent]]:
        """See `BusState`."""
        return (yield from (yield from self._page(page)).history(id))

    def find_pages(self, ids: list[str]) -> Step[dict[str, str]]:
        """See `BusState`."""
        log = self.core.log
        found = yield from find_pages(log, ids)
        return found | (yield from find_archived_pages(log, [id for id in ids if id not in found]))

    def gather(self, pages: Mapping[str, str]) -> Step[dict[str, Observation]]:
        """See `BusState`."""
        found: dict[str, Observation] = {}
        for page, ids in ids_by_page(pages).items():
            found |= yield from (yield from self._page(page)).reads.get(ids)
        return {id: found[id] for id in pages if id in found}

    def happened(self, events: list[AnyEvent]) -> Step[list[AnyEvent]]:
        """See `BusState`."""
        exclusion = self._past.exclusion
        found = []
        for event in events:
            if event.position > (yield from self._end(event.page)):
                continue
            if not (exclusion and exclusion.has_left_out(event.position)):
                found.append(event)
        return found

    def _page(self, name: str) -> Step[PastReads]:
        if name not in self._pages:
            exclusion = self._past.exclusion
            sources = exclusion.sources if exclusion else ()
            self._pages[name] = yield from as_of(self.core, name, self._past.when, sources, None)
        return self._pages[name]

    def _end(self, page: str) -> Step[Position]:
        """Return the last event that had happened on the shard of a page."""
        shard = self.core.log.shard(page)
        if shard not in self._ends:
            self._ends[shard] = (yield from cut_at(self.core, page, self._past.when)).position
        return self._ends[shard]


def consequences(past: PastReads, id: str) -> Step[Consequences]:
    """Return the observations with this one as evidence then, the actions they had led to, and the events it caused.

    Raises NotFound for what had never been on the page.
    """
    found = yield from trace.consequences(PastPages(past), past.reads.page, id)
    observations_then = found.observations
    descendants: dict[str, list[str]] = {}
    queue = [found.id]
    while queue:
        at = queue.pop(0)
        if at not in descendants:
            descendants[at] = [
                child
                for child in found.beneath.get(at, ())
                if child in observations_then and at in observations_then[child].evidence
            ]
            queue += descendants[at]
    observations = {child: each for child, each in observations_then.items() if child in descendants}
    actions = list(dict.fromkeys(action for each in observations.values() for action in each.links))
    return found.model_copy(update={"observations": observations, "beneath": descendants, "actions": actions})
