"""A page of the past."""

# Generated from past_page_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from scratchbus.commands import read
from scratchbus.domain.difference import Difference, differences
from scratchbus.domain.events import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.projections.filters import Filter, keywords_of
from scratchbus.readmodel.scope import Host
from scratchbus.timetravel.past import PastMoment, PastReads

Observations = list[Observation]  # inside a class with a method `list`, that name is taken
Events = list[Event]
Differences = list[Difference]


class PastPage(PastMoment):
    """A page as it was at a moment, or as it would have been. Get it from `Page.as_of`; it never changes.

    Its reads are those of the page, without what came later; an observation that had expired by then reads as
    archived. Reads may ask the engine, so its bus must be open. Safe to share between threads.
    """

    def __init__(self, bus: Host, past: PastReads) -> None:
        super().__init__(past)
        self._bus = bus

    def get(self, id: str) -> Observation | None:
        """Return an observation, or None when it was not on the page."""
        return self._bus.converse(read.get_one(self._past.reads, id))

    def list(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        type: str | None = None,
        status: str | Collection[str] | None = None,
        owner: str | None = None,
        source: str | None = None,
        tags: str | Sequence[str] | None = None,
        text: str | None = None,
        context: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        limit: int | None = 100,
        after: Observation | Position | str | None = None,
    ) -> Observations:
        """Return the observations that match all filters, newest first; `after` is the last item of the previous call.

        A mapping `filters` stands for keywords of the same names. Raises UnknownField, UnknownType or InvalidField for
        a value that no observation can have.
        """
        if filters is not None:
            return self.list(**keywords_of(filters, locals()))
        wanted = Filter.parse(locals())
        return self._bus.converse(read.list_all(self._bus.core, self._past.reads, wanted, limit, after))

    def active(self, limit: int | None = None) -> Observations:
        """Return the observations that were active, by priority, then newest first."""
        return self._bus.converse(self._past.reads.active(limit))

    def history(self, id: str) -> Events:
        """Return its events up to then, oldest first, also when it had left the page.

        Raises NotFound when it had never been on the page, and PositionLost when some of its events have left the
        log.
        """
        return self._bus.converse(self._past.history(id))

    def diff(self, other: PastPage) -> Differences:
        """Return the differences to another past page, in the order in which the observations were added.

        It reads everything on both.
        """
        return differences(self._bus.converse(self._past.everything()), other._bus.converse(other._past.everything()))
