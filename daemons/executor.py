"""The executor: claims suggestions, one at a time, and acts on the alerts they rest on."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import structlog

from scratchbus import Bus, Job, Observation, because
from scratchbus.daemon import Daemon, daemon, duration_option, file_option
from scratchbus.errors import EventIdReused, InvalidInput
from scratchbus.settings import shipped

if __name__ == "__main__" and not __package__:  # `python daemons/executor.py`: name the package (PEP 366)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "daemons"

from .router import EXECUTOR, FOR_EXECUTOR, SUGGESTION
from .tools import Tool, ToolTable, blocklist, default_blocklist, notify, read_tools

CLAIM_TTL = timedelta(seconds=30)
"""How long a claim lasts when its holder dies."""

logger = structlog.get_logger(__name__)


class Executor:
    """Acts on suggestions with the tool that their evidence calls for. Any number of executors may run.

    The holder of the claim acts. If it dies, its claim lapses and another executor acts again, so acting twice must be
    harmless. The event id of the link derives from the suggestion, so the action is recorded once.
    """

    def __init__(
        self, bus: Bus, page: str, table: ToolTable, tools: Mapping[str, Tool], claim_ttl: timedelta | str = CLAIM_TTL
    ) -> None:
        self._bus = bus
        self._page = bus.page(page)
        self._table = table
        self._tools = tools
        self._claim_ttl = claim_ttl

    def run(self, stop: threading.Event) -> None:
        """Act on present and future suggestions until `stop` is set."""
        pages = [self._page.name]
        with self._bus.work(EXECUTOR, types=SUGGESTION, tags=FOR_EXECUTOR, pages=pages, ttl=self._claim_ttl) as jobs:
            jobs.run(self.act, stop)

    def act(self, job: Job) -> None:
        """Act, link the action to the alert, and resolve the suggestion.

        A suggestion that no tool can handle goes to review. An error that may pass is raised, which fails the job.
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
            with contextlib.suppress(EventIdReused):  # an executor that died linked it, with another tool
                self._page.link(alert.id, action=action, event_id=f"{EXECUTOR}:{suggestion.id}:link")
            job.resolve(reason=action)
            log.info("done", action=action)

    def _do(self, alert: Observation) -> str:
        """Run the tool for this alert; return the action. Raises InvalidInput when there is no tool for it."""
        tool = self._table.pick(alert)
        if tool is None:
            raise InvalidInput(f"there is no tool for this {alert.type}; act by hand, or add one to its tools")
        return self._tools[tool](alert)


@daemon("executor")
@file_option("--tools", default=lambda: shipped("tools.yaml"), help="Which tool handles which observations.")
@file_option("--blocklist", "blocklist_file", default=default_blocklist, help="The file for blocked addresses.")
@duration_option("--claim-ttl", default=CLAIM_TTL, help="How long a claim lasts when its holder dies.")
def main(daemon: Daemon, tools: Path, blocklist_file: Path, claim_ttl: timedelta) -> None:
    """Claim what the router suggests, act on it, and record the action."""
    chest = {"blocklist": blocklist(blocklist_file), "notify": notify}
    table = read_tools(tools, known=chest)
    daemon.serve(lambda bus, stop: Executor(bus, daemon.page, table, chest, claim_ttl).run(stop))


if __name__ == "__main__":
    main()
