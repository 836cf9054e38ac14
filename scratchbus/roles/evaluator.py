"""The evaluator: resolves what was acted on, once it has been quiet for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from scratchbus import because
from scratchbus.domain.observation import Observation
from scratchbus.errors import Conflict, NotFound
from scratchbus.roles.following import follow

if TYPE_CHECKING:
    from scratchbus import Bus

QUIET_FOR = timedelta(minutes=10)
"""How long nothing may have been heard of an observation that was acted on before it is resolved."""

_LOOK_AROUND = 1.0  # seconds between two looks at what has become quiet
_OF_INTEREST = ("linked", "status_changed")  # after which an observation may be one to resolve
_KINDS = (*_OF_INTEREST, "repeated", "updated")

logger = structlog.get_logger(__name__)


class Evaluator:
    """Resolves the active observations that an action is linked to, when they have been quiet; any number may run.

    An observation that is repeated is not quiet: while it is open, its occurrences still count up on it.
    """

    def __init__(
        self,
        bus: Bus,
        page: str,
        quiet_for: timedelta = QUIET_FOR,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._bus = bus
        self._name = page
        self._page = bus.page(page)
        self._quiet_for = quiet_for
        self._clock = clock
        self._last_heard: dict[str, datetime] = {}

    def run(self, stop: threading.Event) -> None:
        """Resolve what is quiet now, and whatever becomes so, until stopped."""
        after = self._bus.position()
        self.look_at_page()
        self.look_around()
        for event in follow(self._bus, stop, after=after, page=self._name, every=_LOOK_AROUND, kinds=_KINDS):
            if event is None:
                self.look_around()
            elif event.kind in _OF_INTEREST or event.subject in self._last_heard:
                self._last_heard[event.subject] = event.at

    def look_at_page(self) -> None:
        """Note what was acted on, and when something was last heard of it."""
        self._last_heard = {each.id: each.updated_at for each in self._page.active() if each.links}

    def look_around(self) -> None:
        """Resolve what was acted on and has been quiet since."""
        now = self._clock()
        for id in [id for id, heard in self._last_heard.items() if now - heard >= self._quiet_for]:
            observation = self._page.get(id)
            if observation is None or observation.status != "active" or not observation.links:
                del self._last_heard[id]
            elif now - observation.updated_at < self._quiet_for:
                self._last_heard[id] = observation.updated_at
            else:
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
