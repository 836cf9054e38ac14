"""The router: ranks what is on a page by urgency, and suggests an action for what is urgent."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from scratchbus import Observation, Page, View, because
from scratchbus.errors import EventIdReused
from scratchbus.roles.urgency import HALF_LIFE, by_urgency

SUGGESTION = "action_suggestion"
"""The type of what the router publishes, and the executor takes up."""

THRESHOLD = 65.0
"""From this urgency on, an action is suggested."""

EXECUTOR = "executor"
"""Who is to act on a suggestion: its owner."""

FOR_EXECUTOR = f"for:{EXECUTOR}"
"""The tag of what is left to executors; suggestions without it are for others."""

_WITHOUT_ANSWER = ("expired", "displaced")
_LONGEST = 300  # characters of the alert that a suggestion repeats

logger = structlog.get_logger(__name__)


class Router:
    """Suggests one action per urgent observation; any number of routers may run.

    What was acted on, or has a suggestion already, gets no other. A suggestion that left the page without an
    answer, since it expired or was displaced, is made again while the observation is still urgent.

    It keeps no place in the log: what it has to do can be seen on the page. So it looks at all of that when it begins,
    and then at what changes. The event id of a suggestion derives from the observation and the unanswered suggestion
    before it, so another router, or this one with a view that is a moment behind, does not make it twice.
    """

    def __init__(
        self,
        page: Page,
        view: View,
        threshold: float = THRESHOLD,
        half_life: timedelta = HALF_LIFE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._page = page
        self._view = view
        self._threshold = threshold
        self._half_life = half_life
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Suggest what is urgent now, and whatever becomes so, until stopped."""
        changes = self._view.changes(stop)  # from here on, so that none is missed while it looks around
        self.look_around()
        for change in changes:
            if change.is_resync:
                self.look_around()
            elif (changed := change.after) is not None:
                concerned = changed.evidence if changed.type == SUGGESTION else [changed.id]
                self.consider([one for id in concerned if (one := self._view.get(id))])

    def look_around(self) -> None:
        """Consider everything that is active on the page."""
        self.consider(self._view.active())

    def consider(self, observations: list[Observation]) -> None:
        """Suggest an action for each of these that is open and urgent, the most urgent first."""
        for urgent, one in by_urgency(observations, self._clock(), self._half_life):
            if urgent < self._threshold:
                return
            if one.is_open and one.type != SUGGESTION and not one.links:
                last = self._view.list(type=SUGGESTION, tags=[_tag(one.id)], limit=1)
                if not last or last[0].reason_code in _WITHOUT_ANSWER:
                    self._suggest(one, urgent, last)

    def _suggest(self, observation: Observation, urgent: float, unanswered: list[Observation]) -> None:
        try:
            with because(observation.position):
                suggestion = self._page.add(
                    SUGGESTION,
                    f"Act on: {textwrap.shorten(observation.content, _LONGEST, placeholder=' …')}",
                    owner=EXECUTOR,
                    tags=[FOR_EXECUTOR, _tag(observation.id)],
                    context={"type": observation.type, "tags": observation.tags},
                    metadata={"urgency": round(urgent)},
                    evidence=[observation.id],
                    dedupe_key=_tag(observation.id),
                    event_id=":".join(["router", observation.id, *(each.id for each in unanswered), "suggest"]),
                )
        except EventIdReused:
            return  # another router made it a moment ago
        logger.info("suggested", suggestion=suggestion.id, evidence=observation.id, urgency=round(urgent))
        self._view.wait_for(suggestion)


def _tag(id: str) -> str:
    return f"about:{id}"
