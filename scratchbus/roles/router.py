"""The router: ranks what is on a page by urgency, and suggests an action for what is urgent."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from scratchbus import because
from scratchbus.domain.observation import Observation
from scratchbus.errors import EventIdReused
from scratchbus.roles.following import follow
from scratchbus.roles.urgency import HALF_LIFE, by_urgency

if TYPE_CHECKING:
    from scratchbus import Bus

SUGGESTION = "action_suggestion"
"""The type of what the router publishes, and the executor takes up."""

THRESHOLD = 65.0
"""From this urgency on, an action is suggested."""

EXECUTOR = "executor"
"""Who is to act on a suggestion: its owner."""

_LOOK_AROUND = 30.0  # seconds between two looks at the whole page
_KINDS = ("added", "repeated", "updated", "status_changed")
_WITHOUT_ANSWER = ("expired", "displaced")
_LONGEST = 300  # characters of the alert that a suggestion repeats

logger = structlog.get_logger(__name__)


class Router:
    """Suggests one action per urgent observation; any number of routers may run.

    What was acted on, or has a suggestion already, gets no other. A suggestion that left the page without an
    answer, since it expired or was displaced, is made again while the observation is still urgent.
    """

    def __init__(
        self,
        bus: Bus,
        page: str,
        threshold: float = THRESHOLD,
        half_life: timedelta = HALF_LIFE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._bus = bus
        self._name = page
        self._page = bus.page(page)
        self._threshold = threshold
        self._half_life = half_life
        self._clock = clock
        self._settled: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """Suggest what is urgent now, and whatever becomes so, until stopped."""
        after = self._bus.position()
        self.look_around()
        for event in follow(self._bus, stop, after=after, page=self._name, every=_LOOK_AROUND, kinds=_KINDS):
            if event is None:
                self.look_around()
            elif event.type != SUGGESTION and event.subject not in self._settled:
                observation = self._page.get(event.subject)
                if observation is not None:
                    self.consider([observation])

    def look_around(self) -> None:
        """Consider everything that is active on the page."""
        self._settled.clear()
        self.consider([each for each in self._page.active() if each.type != SUGGESTION])

    def consider(self, observations: list[Observation]) -> None:
        """Suggest an action for each of these that is open and urgent, the most urgent first."""
        for urgent, observation in by_urgency(observations, self._clock(), self._half_life):
            if urgent >= self._threshold and observation.is_open:
                if not observation.links and not self._has_suggestion(observation.id):
                    self._suggest(observation, urgent)
                self._settled.add(observation.id)

    def _has_suggestion(self, id: str) -> bool:
        made = self._page.list(type=SUGGESTION, tags=[_tag(id)], limit=1)
        return bool(made) and made[0].reason_code not in _WITHOUT_ANSWER

    def _suggest(self, observation: Observation, urgent: float) -> None:
        try:
            with because(observation.position):
                suggestion = self._page.add(
                    SUGGESTION,
                    f"Act on: {textwrap.shorten(observation.content, _LONGEST, placeholder=' …')}",
                    owner=EXECUTOR,
                    tags=[_tag(observation.id)],
                    context={"type": observation.type, "tags": observation.tags},
                    metadata={"urgency": round(urgent)},
                    evidence=[observation.id],
                    dedupe_key=_tag(observation.id),
                    event_id=f"router:{observation.id}:{observation.version}:suggest",
                )
        except EventIdReused:
            return  # another router looked at the same version a moment ago
        logger.info("suggested", suggestion=suggestion.id, evidence=observation.id, urgency=round(urgent))


def _tag(id: str) -> str:
    return f"about:{id}"
