"""The executor: claims suggestions, one at a time, and acts on the observations they rest on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import structlog

from scratchbus import Bus, Job, Observation, because, events
from scratchbus.daemon import Daemon, daemon, duration_option, file_option
from scratchbus.errors import EventIdReused, InvalidInput
from scratchbus.settings import shipped

if __name__ == "__main__" and not __package__:  # `python daemons/executor.py`: name the package (PEP 366)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "daemons"

from .completion import OUTCOME, Outcome
from .router import CONFIRMATION, EXECUTOR, FOR_EXECUTOR, OVER, SUGGESTION
from .tools import Choice, Tool, ToolTable, blocklist, default_blocklist, notify, read_tools

CLAIM_TTL = timedelta(seconds=30)
"""How long a claim lasts when its holder dies."""

logger = structlog.get_logger(__name__)


class Executor:
    """Acts on suggestions with the tool that their evidence calls for. Any number of executors may run.

    Confirmations needed before an action come first: their type has the higher priority. The holder of the
    claim acts. If it dies, its claim lapses and another executor acts again, so acting twice must be harmless. The
    event id of the link derives from the suggestion, so the action is recorded once. The outcome of the action is
    recorded in the metadata of the suggestion, for the evaluator.
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
        types = (SUGGESTION, CONFIRMATION)
        with self._bus.work(EXECUTOR, types=types, tags=FOR_EXECUTOR, pages=pages, ttl=self._claim_ttl) as jobs:
            jobs.run(self.act, stop)

    def act(self, job: Job) -> None:
        """Act, record the action and its outcome, and resolve the suggestion.

        A suggestion that no tool can handle goes to review; so does one whose action is not over, and a confirmation
        that was asked for. An error that may pass is raised, which fails the job.
        """
        suggestion = job.observation
        subject = self._page.get(suggestion.evidence[0]) if suggestion.evidence else None
        log = logger.bind(suggestion=suggestion.id, evidence=suggestion.evidence)
        with because(suggestion.position):
            is_question = suggestion.type == CONFIRMATION
            if subject is None or not subject.is_open:
                (job.archive if is_question else job.resolve)(reason=OVER)  # a resolved question is a confirmed one
                log.info("nothing left to do")
                return
            try:
                choice = self._choose(suggestion if is_question else subject)
                action = self._tools[choice.tool](suggestion if is_question else subject)
            except InvalidInput as problem:
                self._record(job, "failed")
                job.review(reason=str(problem))
                log.warning("left for review", reason=str(problem))
                return
            except OSError:
                self._record(job, "failed")
                raise
            if not is_question:
                action = self._link(subject.id, action, f"{EXECUTOR}:{suggestion.id}:link")
            if is_question or len(suggestion.evidence) > 1:  # else the link of its evidence suffices
                action = self._link(suggestion.id, action, f"{EXECUTOR}:{suggestion.id}:step")
            self._record(job, choice.success, action)
            if choice.success == "done" or (choice.success == "notified" and not is_question):
                job.resolve(reason=action)
            else:
                job.review(reason=f"{action}: {'waiting for the confirmation' if is_question else choice.success}")
            log.info(choice.success, action=action)

    def _choose(self, observation: Observation) -> Choice:
        """Return which tool handles an observation. Raises InvalidInput when none does."""
        choice = self._table.pick(observation)
        if choice is None:
            raise InvalidInput(f"there is no tool for this {observation.type}; act by hand, or add one to its tools")
        return choice

    def _link(self, id: str, action: str, event_id: str) -> str:
        """Link an action, unless an executor that died has linked one for this suggestion; return the linked one."""
        try:
            self._page.link(id, action=action, event_id=event_id)
        except EventIdReused:
            linked = [
                each for each in self._page.history(id) if isinstance(each, events.Linked) and each.id == event_id
            ]
            return linked[0].action if linked else action
        return action

    def _record(self, job: Job, outcome: Outcome, action: str | None = None) -> None:
        """Record the outcome of an action in its suggestion, and keep concurrent changes by others."""
        current = self._page.get(job.id)
        fields = {OUTCOME: outcome} | ({} if action is None else {"action": action})
        job.update(metadata={**(current or job.observation).metadata, **fields})


@daemon("executor")
@file_option(
    "--tools",
    default=lambda: shipped("tools.yaml"),
    show_default="the shipped one",
    help="The tools, and the observations they handle.",
)
@file_option(
    "--blocklist",
    "blocklist_file",
    default=default_blocklist,
    show_default="blocklist.txt in the state directory",
    help="The file for blocked addresses.",
)
@duration_option("--claim-ttl", default=CLAIM_TTL, help="How long a claim lasts when its holder dies.")
def main(daemon: Daemon, tools: Path, blocklist_file: Path, claim_ttl: timedelta) -> None:
    """Claim the router's suggestions, act on them, and record the actions."""
    tools_by_name = {"blocklist": blocklist(blocklist_file), "notify": notify}
    table = read_tools(tools, known=tools_by_name)
    daemon.serve(lambda bus, stop: Executor(bus, daemon.page, table, tools_by_name, claim_ttl).run(stop))


if __name__ == "__main__":
    main()
