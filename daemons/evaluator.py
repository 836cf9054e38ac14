"""The evaluator: resolves observations that were acted on and have been quiet for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from scratchbus import Bus, Observation, Page, View, because
from scratchbus.daemon import Daemon, daemon, duration_option
from scratchbus.errors import Conflict, NotFound

QUIET_FOR = timedelta(minutes=10)
"""How long an observation that was acted on must be quiet before it is resolved."""

_LOOK_INTERVAL = 1.0  # seconds between two checks for quiet observations

logger = structlog.get_logger(__name__)


class Evaluator:
    """Resolves active observations with a linked action once they are quiet. Any number of evaluators may run.

    A repeated observation is not quiet: while it is open, each sighting counts up its occurrences and renews it.
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
        """Resolve quiet observations until `stop` is set."""
        while not stop.is_set():
            self.look_around()
            stop.wait(_LOOK_INTERVAL)

    def look_around(self) -> None:
        """Resolve every observation that was acted on and has been quiet since."""
        quiet_since = self._clock() - self._quiet_for
        for observation in self._view.active():
            if observation.links and observation.updated_at <= quiet_since:
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
        except (Conflict, NotFound) as problem:  # it changed meanwhile; the next look sees how
            logger.info("not resolved", observation=observation.id, reason=str(problem))
        else:
            logger.info("resolved", observation=observation.id, occurrences=observation.occurrences)


@daemon("evaluator")
@duration_option("--quiet-for", default=QUIET_FOR, help="How long an observation must be quiet to be resolved.")
def main(daemon: Daemon, quiet_for: timedelta) -> None:
    """Resolve observations that were acted on and have been quiet for a while."""

    def evaluate(bus: Bus, stop: threading.Event) -> None:
        with bus.view(daemon.page) as view:
            Evaluator(bus.page(daemon.page), view, quiet_for).run(stop)

    daemon.serve(evaluate)


if __name__ == "__main__":
    main()
