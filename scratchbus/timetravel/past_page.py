"""A page of the past."""

# Generated from past_page_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from scratchbus.commands import exposure as exposure_log
from scratchbus.commands import read
from scratchbus.commands import trace as trace_queries
from scratchbus.domain.difference import Difference, differences
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.exposure import Exposure
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.trace import Consequences, Trace
from scratchbus.errors import InvalidField, shown
from scratchbus.projections.filters import FilterKeywords, filter_of, list_arguments
from scratchbus.readmodel.scope import Host
from scratchbus.timetravel import past_moment
from scratchbus.timetravel.past import PastMoment, PastReads
from scratchbus.timetravel.past_moment import PastPages

Observations = list[Observation]  # inside a class with a method `list`, that name is taken
Events = list[AnyEvent]
Differences = list[Difference]


class PastPage(PastMoment):
    """A page at a past moment, or as it would have been without some sources. Get it from `Page.as_of`.

    It never changes. Its reads are those of the page, without later events; an observation that had expired by then
    reads as archived. Reads may ask the engine, so its bus must be open. Safe to share between threads.
    """

    def __init__(self, bus: Host, past: PastReads) -> None:
        super().__init__(past)
        self._bus = bus

    def get(self, id: str) -> Observation | None:
        """Return an observation, or None if it was not on the page."""
        return self._bus.converse(read.get_one(self._past.reads, id))

    def list(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        limit: int | None = 100,
        after: Observation | Position | str | None = None,
        **keywords: Unpack[FilterKeywords],
    ) -> Observations:
        """Return the observations that match all filters, newest first; `after` is the last item of the previous call.

        The filters are those of `Page.list`. A mapping `filters` stands for keywords of the same names. Raises
        UnknownField, UnknownType or InvalidField for a value that no observation can have.
        """
        filter, limit, after = list_arguments(filters, keywords, limit, after)
        return self._bus.converse(read.list_all(self._bus.core, self._past.reads, filter, limit, after))

    def count(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        after: Observation | Position | str | None = None,
        limit: int | None = 1_000,
        **keywords: Unpack[FilterKeywords],
    ) -> int:
        """Return how many observations match the filters of `list`, at most `limit`.

        With `after`, the last item of a list that reached its limit, this counts the remaining matches.
        """
        reads, filter = self._past.reads, filter_of(filters, keywords)
        return len(self._bus.converse(read.list_all(self._bus.core, reads, filter, limit, after)))

    def counts(self) -> read.PageCounts:
        """Return how many observations of each status and type there were, among the newest 10,000."""
        return self._bus.converse(read.count_all(self._past.reads))

    def active(self, limit: int | None = None) -> Observations:
        """Return the observations that were active, by priority, then newest first."""
        return self._bus.converse(self._past.reads.active(limit))

    def history(self, id: str) -> Events:
        """Return its events up to then, oldest first, also if it had left the page.

        Raises NotFound if it had never been on the page, and PositionLost if some of its events have left the log.
        """
        return self._bus.converse(self._past.history(id))

    def trace(self, action: str) -> Trace:
        """Return what had led to an action by then: the observations linked to it, and their evidence.

        Raises NotFound when nothing on the page was linked to it.
        """
        return self._bus.converse(trace_queries.trace(PastPages(self._past), self.name, action))

    def consequences(self, id: str) -> Consequences:
        """Return its consequences by then: observations it was evidence for, actions linked to them, events it caused.

        Raises NotFound when it had never been on the page.
        """
        return self._bus.converse(past_moment.consequences(self._past, id))

    def exposure(self, id: str) -> Exposure:
        """Return the agents shown it by then, when and in which version, and the actions they had linked.

        Raises NotFound when it had never been on the page.
        """
        return self._bus.converse(exposure_log.exposure(PastPages(self._past), self.name, id))

    def evidence(self, id: str) -> dict[str, Observation]:
        """Return its direct and indirect evidence by id: observations of this page, and of others.

        Raises NotFound for an id that was not on this page.
        """
        return self._bus.converse(trace_queries.evidence(PastPages(self._past), self.name, id))

    def diff(self, other: PastPage) -> Differences:
        """Return the differences to another past page, in the order in which the observations were added.

        It reads everything on both. Raises InvalidField for anything but a past page.
        """
        if not isinstance(other, PastPage):
            raise InvalidField("other", f"{shown(other)} is not a past page; pass what page.as_of(…) returned")
        return differences(self._bus.converse(self._past.everything()), other._bus.converse(other._past.everything()))
