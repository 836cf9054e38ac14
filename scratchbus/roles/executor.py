"""The executor: takes up suggestions, one at a time, and acts on what they rest on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from datetime import timedelta

import structlog

from scratchbus import Bus, Job, Observation, because
from scratchbus.domain.values import Duration
from scratchbus.errors import EventIdReused, InvalidInput
from scratchbus.roles.router import EXECUTOR, FOR_EXECUTOR, SUGGESTION
from scratchbus.roles.tools import Tool, ToolTable

CLAIM_TTL = timedelta(seconds=30)
"""How long a claim holds when its holder dies."""

logger = structlog.get_logger(__name__)


class Executor:
    """Acts on suggestions with the tool their evidence calls for; any number of executors may run.

    Whoever has the claim acts. One that dies loses its claim in time and another acts again, which tools allow for;
    the event id of the link derives from the suggestion, so what was done is recorded once.
    """

    def __init__(
        self, bus: Bus, page: str, table: ToolTable, tools: Mapping[str, Tool], claim_ttl: Duration = CLAIM_TTL
    ) -> None:
        self._bus = bus
        self._page = bus.page(page)
        self._table = table
        self._tools = tools
        self._claim_ttl = claim_ttl

    def run(self, stop: threading.Event) -> None:
        """Take up what is suggested now, and whatever will be, until stopped."""
        pages = [self._page.name]
        with self._bus.work(EXECUTOR, types=SUGGESTION, tags=FOR_EXECUTOR, pages=pages, ttl=self._claim_ttl) as jobs:
            jobs.run(self.act, stop)

    def act(self, job: Job) -> None:
        """Act, link the action to what motivated it, and resolve the suggestion.

        What no tool can do anything with goes to review. Raises what may go better later, which fails the job.
        """
        suggestion = job.observation
        alert = self._page.get(suggestion.evidence[0]) if suggestion.evidence else None
        log = logger.bind(suggestion=suggestion.id, evidence=suggestion.evidence)
        with because(suggestion.position):
            if alert is None or not alert.is_open:
                job.resolve(reason="what it rests on is over")
                log.info("nothing left to do")
                return
            try:
                action = self._do(alert)
            except InvalidInput as problem:
                job.review(reason=str(problem))
                log.warning("left for review", reason=str(problem))
                return
            with contextlib.suppress(EventIdReused):  # linked before, by one who died and had another tool
                self._page.link(alert.id, action=action, event_id=f"{EXECUTOR}:{suggestion.id}:link")
            job.resolve(reason=action)
            log.info("done", action=action)

    def _do(self, alert: Observation) -> str:
        """Have the tool that this calls for act on it; return the action. Raises InvalidInput when none can."""
        tool = self._table.pick(alert)
        if tool is None:
            raise InvalidInput(f"there is no tool for this {alert.type}; act by hand, or add one to its tools")
        return self._tools[tool](alert)
