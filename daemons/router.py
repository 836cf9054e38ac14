"""The router: ranks the observations of a page by urgency, and suggests an action for urgent ones."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import click
import structlog

from scratchbus import Bus, Observation, Page, View, because, by_urgency
from scratchbus.daemon import Daemon, daemon
from scratchbus.errors import EventIdReused

SUGGESTION = "action_suggestion"
"""The type of the observations that the router publishes and the executor claims."""

THRESHOLD = 65.0
"""The router suggests an action from this urgency on."""

EXECUTOR = "executor"
"""The owner of a suggestion: who is to act on it."""

FOR_EXECUTOR = f"for:{EXECUTOR}"
"""The tag of suggestions for executors; suggestions without it are for someone else."""

_UNANSWERED = ("expired", "displaced")
_LONGEST_EXCERPT = 300  # characters of the alert that a suggestion repeats

logger = structlog.get_logger(__name__)


class Router:
    """Suggests one action for each urgent observation. Any number of routers may run.

    An observation that was acted on, or already has a suggestion, gets no other. If a suggestion expired or was
    displaced before anyone answered it, the router suggests again while the observation is still urgent.

    The router stores no position: everything it needs is on the page. It considers the whole page when it starts, then
    each change. The event id of a suggestion derives from the observation and its unanswered suggestion, so a second
    router, or a view that lags, does not suggest twice.
    """

    def __init__(
        self,
        page: Page,
        view: View,
        threshold: float = THRESHOLD,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._page = page
        self._view = view
        self._threshold = threshold
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Suggest actions for urgent observations until `stop` is set."""
        changes = self._view.changes(stop)  # subscribe before the first look, so that no change is missed
        self.look_around()
        for change in changes:
            if change.is_resync:
                self.look_around()
            elif (changed := change.after) is not None:
                concerned = changed.evidence if changed.type == SUGGESTION else [changed.id]
                self.consider([one for id in concerned if (one := self._view.get(id))])

    def look_around(self) -> None:
        """Consider every active observation of the page."""
        self.consider(self._view.active())

    def consider(self, observations: list[Observation]) -> None:
        """Suggest an action for each of these that is open and urgent, the most urgent first."""
        for urgent, one in by_urgency(observations, self._clock()):
            if urgent < self._threshold:
                return
            if one.is_open and one.type != SUGGESTION and not one.links:
                last = self._view.list(type=SUGGESTION, tags=[_tag(one.id)], limit=1)
                if not last or last[0].reason_code in _UNANSWERED:
                    self._suggest(one, urgent, last)

    def _suggest(self, observation: Observation, urgent: float, unanswered: list[Observation]) -> None:
        try:
            with because(observation.position):
                suggestion = self._page.add(
                    SUGGESTION,
                    f"Act on: {textwrap.shorten(observation.content, _LONGEST_EXCERPT, placeholder=' …')}",
                    owner=EXECUTOR,
                    tags=[FOR_EXECUTOR, _tag(observation.id)],
                    context={"type": observation.type, "tags": observation.tags},
                    metadata={"urgency": round(urgent)},
                    evidence=[observation.id],
                    dedupe_key=_tag(observation.id),
                    event_id=":".join(["router", observation.id, *(each.id for each in unanswered), "suggest"]),
                )
        except EventIdReused:
            return  # another router suggested it a moment ago
        logger.info("suggested", suggestion=suggestion.id, evidence=observation.id, urgency=round(urgent))
        self._view.wait_for(suggestion)


def _tag(id: str) -> str:
    return f"about:{id}"


@daemon("router")
@click.option("--threshold", type=click.FloatRange(0, 100), default=THRESHOLD, help="Suggest from this urgency on.")
def main(daemon: Daemon, threshold: float) -> None:
    """Rank the observations of the page by urgency, and suggest an action for urgent ones."""

    def route(bus: Bus, stop: threading.Event) -> None:
        with bus.view(daemon.page) as view:
            Router(bus.page(daemon.page), view, threshold).run(stop)

    daemon.serve(route)


if __name__ == "__main__":
    main()
