"""The evaluator: resolves what was acted on, once it has been quiet for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from scratchbus import Observation, Page, View, because
from scratchbus.errors import Conflict, NotFound

QUIET_FOR = timedelta(minutes=10)
"""How long nothing may have been heard of an observation that was acted on before it is resolved."""

_LOOK_AROUND = 1.0  # seconds between two looks at what has become quiet

logger = structlog.get_logger(__name__)


class Evaluator:
    """Resolves the active observations that an action is linked to, when they have been quiet; any number may run.

    An observation that is repeated is not quiet: while it is open, its occurrences still count up on it.
    """

    def __init__(
        self,
        page: Page,
        view: View,
        quiet_for: timedelta = QUIET_FOR,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._page = page
        self._view = view
        self._quiet_for = quiet_for
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Resolve what is quiet now, and whatever becomes so, until stopped."""
        while not stop.is_set():
            self.look_around()
            stop.wait(_LOOK_AROUND)

    def look_around(self) -> None:
        """Resolve what was acted on and has been quiet since."""
        heard_before = self._clock() - self._quiet_for
        for observation in self._view.active():
            if observation.links and observation.updated_at <= heard_before:
                self._resolve(observation)

    def _resolve(self, observation: Observation) -> None:
        try:
            with because(observation.position):
                self._page.resolve(
                    observation.id,
                    reason=f"acted on ({', '.join(observation.links)}) and quiet since",
                    expected_version=observation.version,
                    event_id=f"evaluator:{observation.id}:{observation.version}:resolve",
                )
        except (Conflict, NotFound) as problem:  # it has moved on; the next look sees how
            logger.info("not resolved", observation=observation.id, reason=str(problem))
        else:
            logger.info("resolved", observation=observation.id, occurrences=observation.occurrences)
