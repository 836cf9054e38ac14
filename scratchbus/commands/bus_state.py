"""The visible state of a bus, now or at a time in the past, as relations are followed through it."""

from __future__ import annotations

from collections.abc import Mapping

from scratchbus.commands.read import list_history
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.observation import Observation
from scratchbus.engine.steps import Step
from scratchbus.readmodel.relations import find_pages, gather
from scratchbus.readmodel.scope import Core


class BusState:
    """The visible pages of a bus as they are now; a subclass has them as they were at a time."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def history(self, page: str, id: str) -> Step[list[AnyEvent]]:
        """Return the events about an observation, oldest first. Raises NotFound."""
        return list_history(self.core, page, id)

    def find_pages(self, ids: list[str]) -> Step[dict[str, str]]:
        """Return the page of each of these ids that any page can still have."""
        return find_pages(self.core.log, ids)

    def gather(self, pages: Mapping[str, str]) -> Step[dict[str, Observation]]:
        """Return the observations with these ids, each from its page, without missing ones."""
        return gather(self.core.log, pages, self.core.fresh)

    def happened(self, events: list[AnyEvent]) -> Step[list[AnyEvent]]:
        """Return those of these events that had happened."""
        yield from ()
        return events
