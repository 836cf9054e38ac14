"""The executor: takes up suggestions, one claim at a time, and acts on what they rest on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog
from structlog.typing import FilteringBoundLogger

from scratchbus import because
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.values import Duration
from scratchbus.errors import Conflict, EventIdReused, InvalidInput, NotFound
from scratchbus.roles.following import follow
from scratchbus.roles.router import SUGGESTION
from scratchbus.roles.tools import Tool, ToolTable

if TYPE_CHECKING:
    from scratchbus import Bus

CLAIM_TTL = timedelta(seconds=30)
"""How long a claim holds when its holder dies."""

_LOOK_AROUND = 5.0  # seconds between two looks for suggestions that were left
_KINDS = ("added", "lapsed", "status_changed")

logger = structlog.get_logger(__name__)


class Executor:
    """Acts on suggestions with the tool their evidence calls for; any number of executors may run.

    Whoever has the claim acts. One that dies loses its claim in time and another acts again, which tools allow for;
    the event ids derive from the suggestion, so what was done is recorded once.
    """

    def __init__(
        self,
        bus: Bus,
        page: str,
        table: ToolTable,
        tools: Mapping[str, Tool],
        name: str,
        claim_ttl: Duration = CLAIM_TTL,
    ) -> None:
        self._bus = bus
        self._name = page
        self._page = bus.page(page)
        self._table = table
        self._tools = tools
        self._by = name
        self._claim_ttl = claim_ttl

    def run(self, stop: threading.Event) -> None:
        """Take up what is suggested now, and whatever will be, until stopped."""
        after = self._bus.position()
        self.look_around(stop)
        events = follow(
            self._bus, stop, after=after, page=self._name, every=_LOOK_AROUND, types=[SUGGESTION], kinds=_KINDS
        )
        for event in events:
            if event is None:
                self.look_around(stop)
            elif (suggestion := self._page.get(event.subject)) is not None:
                self.take_up(suggestion)

    def look_around(self, stop: threading.Event) -> None:
        """Take up every suggestion that is active, the most urgent first."""
        waiting = self._page.list(type=SUGGESTION, status="active", limit=None)
        for suggestion in sorted(waiting, key=_urgency, reverse=True):
            if stop.is_set():
                return
            self.take_up(suggestion)

    def take_up(self, suggestion: Observation) -> None:
        """Act on a suggestion, unless someone else does, it is no longer active, or there is no tool for it."""
        if suggestion.status != "active" or not suggestion.evidence:
            return
        alert = self._page.get(suggestion.evidence[0])
        tool = self._table.pick(alert) if alert is not None else None
        if alert is None or tool is None:
            return
        log = logger.bind(suggestion=suggestion.id, evidence=alert.id, tool=tool)
        try:
            with because(suggestion.position):
                claim = self._page.claim(suggestion.id, by=self._by, ttl=self._claim_ttl)
                self._act(suggestion, alert, self._tools[tool], claim, log)
        except (Conflict, NotFound) as lost:
            log.debug("someone else was first", reason=str(lost))

    def _act(
        self, suggestion: Observation, alert: Observation, tool: Tool, claim: Claim, log: FilteringBoundLogger
    ) -> None:
        """Act, link the action to what motivated it, and resolve the suggestion: all as the claim's holder."""
        if not alert.is_open:
            self._resolve(suggestion, "what it rests on is over", claim)
            log.info("nothing left to do")
            return
        try:
            action = tool(alert)
        except InvalidInput as problem:
            self._page.review(suggestion.id, reason=str(problem), fence=claim.fence)
            log.warning("left for review", reason=str(problem))
            return
        except OSError as problem:
            log.error("failed; will be tried again", reason=str(problem))
            self._page.release(suggestion.id, by=self._by, fence=claim.fence)
            return
        with contextlib.suppress(EventIdReused):  # linked before, by one who died and had another tool
            self._page.link(alert.id, action=action, event_id=f"executor:{suggestion.id}:link")
        self._resolve(suggestion, action, claim)
        log.info("done", action=action)

    def _resolve(self, suggestion: Observation, reason: str, claim: Claim) -> None:
        event_id = f"executor:{suggestion.id}:resolve"
        self._page.resolve(suggestion.id, reason=reason, fence=claim.fence, event_id=event_id)


def _urgency(suggestion: Observation) -> float:
    given = suggestion.metadata.get("urgency")
    return given if isinstance(given, int | float) else 0.0
