"""The router: ranks the observations of a page by urgency, and suggests an action for urgent ones."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click
import structlog

from scratchbus import Bus, Change, Observation, Page, View, because
from scratchbus.daemon import Daemon, daemon, file_option
from scratchbus.errors import EngineAuth, EngineForbidden, EventIdReused
from scratchbus.settings import shipped

if __name__ == "__main__" and not __package__:  # `python daemons/router.py`: name the package (PEP 366)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "daemons"

from .completion import warn_of_types
from .router_rules import Mode, RouterRules, read_router_rules

SUGGESTION = "action_suggestion"
"""The type of the observations that the router publishes and the executor claims."""

CONFIRMATION = "pending_confirmation"
"""The type of confirmations needed before a suggestion is made; the executor claims them first."""

THRESHOLD = 65.0
"""The router suggests an action from this urgency on."""

EXECUTOR = "executor"
"""The owner of a suggestion, who acts on it."""

FOR_EXECUTOR = f"for:{EXECUTOR}"
"""The tag of suggestions for executors; suggestions without it are for someone else."""

NO_RULES = RouterRules()
"""Every urgency fades, and there are no modes."""

_STRICTNESS = {None: 0, "verify": 1, "hold": 2}
_SAID = {"suggest": "suggested", "verify": "asked to verify"}
OVER = "what it rests on is over"
"""Why an executor closed a suggestion, or archived a question, without doing anything."""

_UNANSWERED = ("expired", "displaced")
_NOTHING = -1  # below every priority
_MAX_EXCERPT = 300  # characters of an observation that a suggestion repeats
_LOOK_INTERVAL = 60.0  # seconds between two looks at what grows more urgent while nothing happens

logger = structlog.get_logger(__name__)


class _Ranked(NamedTuple):
    """An observation, how urgent it is, and the mode that concerns it with the active observation that causes it."""

    observation: Observation
    urgent: float
    mode: Mode | None = None
    alert: Observation | None = None


class Router:
    """Suggests one action for each urgent observation. Any number of routers may run.

    An observation that was acted on, or already has a suggestion, gets no other. If a suggestion expired or was
    displaced before anyone answered it, the router suggests again while the observation is still urgent. On a page that
    is full (`max_observations`) a displaced one waits for room, since it would only displace another. While a mode of
    its rules is in force, some observations are more urgent, have to be verified first, or are held back.

    The router stores no position: everything it needs is on the page. It considers the whole page when it starts and
    every minute, and on changes at once. The event id of a suggestion derives from the observation and its
    unanswered suggestion, so a second router, or a view that lags, does not suggest twice.
    """

    def __init__(
        self,
        page: Page,
        view: View,
        threshold: float = THRESHOLD,
        rules: RouterRules = NO_RULES,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        max_observations: int | None = None,
    ) -> None:
        self._page = page
        self._view = view
        self._threshold = threshold
        self._rules = rules
        self._clock = clock
        self._max_observations = max_observations
        self._full_for = _NOTHING  # no room for this priority and those below, as the pass has found
        self._has_waiting = False  # displaced publications that wait for room

    def run(self, stop: threading.Event) -> None:
        """Suggest actions for urgent observations until `stop` is set."""
        minute = None
        while minute is None or minute.is_over:
            minute = _Minute(stop, unrefused(self._view))
            changes = self._view.changes(minute)  # subscribe before the look, so that no change is missed
            self.consider_all()
            for change in changes:
                self._follow(change)

    def _follow(self, change: Change) -> None:
        changed = change.after or change.before
        states = [each for each in (change.before, change.after) if each is not None]
        may_switch = any(mode.during.fits(each) for mode in self._rules.modes for each in states)
        makes_room = changed is not None and not changed.is_open and changed.reason_code != "displaced"
        if change.is_resync or changed is None or may_switch or (makes_room and self._has_waiting):
            self.consider_all()
        else:
            concerned = changed.evidence[:1] if FOR_EXECUTOR in changed.tags else [changed.id]
            self.consider([observation for id in concerned if (observation := self._view.get(id))])

    def consider_all(self) -> None:
        """Consider every active observation of the page."""
        self._has_waiting = False
        self.consider(self._view.active())

    def consider(self, observations: list[Observation]) -> None:
        """Suggest an action for each of these that is open and urgent, the most urgent first."""
        self._full_for = _NOTHING
        active = self._view.active() if self._rules.modes else []
        in_force = [(mode, alert) for mode in self._rules.modes for alert in active if mode.during.fits(alert)]
        ranked = [self._ranked(observation, in_force) for observation in observations if _is_actionable(observation)]
        for each in sorted(ranked, key=lambda each: (-each.urgent, each.observation.added)):
            if each.urgent < self._threshold:
                return
            if each.mode is None or each.mode.then is None:
                self._suggest_once(each)
            elif each.mode.then == "hold":
                logger.debug("held back", observation=each.observation.id, mode=each.mode.name)
            elif (verified := self._verified(each)) is not None:
                self._suggest_once(each, verified)

    def _ranked(self, observation: Observation, in_force: list[tuple[Mode, Observation]]) -> _Ranked:
        """Return an observation with its urgency, and the strictest mode that concerns it."""
        ranked = _Ranked(observation, self._rules.urgency(observation, self._clock()))
        concerning = [(mode, alert) for mode, alert in in_force if mode.concerns(observation, alert)]
        if not concerning:
            return ranked
        mode, alert = max(concerning, key=lambda each: _STRICTNESS[each[0].then])
        raised = max(mode.up for mode, _ in concerning)
        return _Ranked(observation, min(100.0, ranked.urgent + raised), mode, alert)

    def _verified(self, ranked: _Ranked) -> Observation | None:
        """Return the confirmation of an observation, or None while it has none, after asking for it."""
        requests = self._view.list(type=CONFIRMATION, tags=[FOR_EXECUTOR, about(ranked.observation.id)], limit=1)
        if requests and (requests[0].status == "resolved" or requests[0].reason_code == "auto_archived"):
            return requests[0]  # only resolved observations are archived automatically
        if not requests or self._is_to_repeat(requests[0]):
            context = {"task_id": f"verify_{ranked.observation.id}"}
            self._add(CONFIRMATION, "Verify before acting", "verify", ranked, requests, context=context)
        return None

    def _suggest_once(self, ranked: _Ranked, *grounds: Observation) -> None:
        suggestions = self._view.list(type=SUGGESTION, tags=[about(ranked.observation.id)], limit=1)
        if not suggestions or self._is_to_repeat(suggestions[0]):
            self._add(SUGGESTION, "Act on", "suggest", ranked, suggestions, grounds, context={})

    def _is_to_repeat(self, publication: Observation) -> bool:
        """Return whether nobody has reacted to the last publication, and another would not displace its like."""
        if not _is_unanswered(publication) or publication.reason_code != "displaced":
            return _is_unanswered(publication)
        if publication.priority > self._full_for and self._has_room(publication.priority):
            return True
        self._full_for, self._has_waiting = max(publication.priority, self._full_for), True
        return False

    def _has_room(self, priority: int) -> bool:
        """Return whether the page has room for one more, or an observation that should give way to this priority."""
        found = [each for each in self._view.list(status=None, limit=None) if each.is_open]
        if self._max_observations is None or len(found) < self._max_observations:
            return True
        return any(each.priority < priority and each.claim is None and each.not_before is None for each in found)

    def _add(
        self,
        type: str,
        verb: str,
        step: str,
        ranked: _Ranked,
        unanswered: list[Observation],
        grounds: Sequence[Observation] = (),
        *,
        context: Mapping[str, Any],
    ) -> None:
        """Publish what an executor is to do next about an observation: verify it, or act on it."""
        observation, mode, alert = ranked.observation, ranked.mode, ranked.alert
        content = f"{verb}: {_excerpt(observation)}"
        metadata: dict[str, Any] = {"urgency": round(ranked.urgent)}
        evidence = [observation.id, *(each.id for each in grounds)]
        if mode is not None and alert is not None:
            content += f" [{mode.name}: {_excerpt(alert)}]"
            metadata["mode"] = mode.name
            evidence.append(alert.id)
        try:
            with because(observation.position):
                added = self._page.add(
                    type,
                    content,
                    owner=EXECUTOR,
                    tags=[FOR_EXECUTOR, about(observation.id)],
                    context={"type": observation.type, "tags": observation.tags, **context},
                    metadata=metadata,
                    evidence=evidence,
                    dedupe_key=f"{step}:{observation.id}",
                    event_id=":".join(["router", observation.id, *(each.id for each in unanswered), step]),
                )
        except EventIdReused:
            return  # another router did it a moment ago
        logger.info(_SAID[step], **{type: added.id}, evidence=observation.id, urgency=round(ranked.urgent))
        self._view.wait_for(added)


class _Minute:
    """An event that is set when `stop` is set, when a minute is over, or when the engine refuses the view's user."""

    def __init__(self, stop: threading.Event, view: View) -> None:
        self._stop = stop
        self._view = view
        self._end = time.monotonic() + _LOOK_INTERVAL

    @property
    def is_over(self) -> bool:
        """Whether the minute is over, or ended by a refusal, and `stop` is not set."""
        return not self._stop.is_set() and (time.monotonic() > self._end or _is_refused(self._view))

    def is_set(self) -> bool:
        return self._stop.is_set() or self.is_over


def unrefused(view: View) -> View:
    """Return a view. Raises its error if the engine refuses its user: no retry helps, unlike after other errors."""
    if _is_refused(view) and (trouble := view.trouble) is not None:
        raise trouble.with_traceback(None)
    return view


def _is_refused(view: View) -> bool:
    return isinstance(view.trouble, EngineAuth | EngineForbidden)


def _is_actionable(observation: Observation) -> bool:
    """Return whether to suggest an action: nobody has acted yet, it needs no review, and no router published it."""
    is_ours = observation.type == SUGGESTION or FOR_EXECUTOR in observation.tags
    return observation.is_open and observation.status != "pending_review" and not observation.links and not is_ours


def _is_unanswered(publication: Observation) -> bool:
    """Return whether nobody has reacted to the last publication."""
    return publication.reason_code in _UNANSWERED or (not publication.is_open and publication.reason == OVER)


def _excerpt(observation: Observation) -> str:
    text = " ".join(observation.content.split())
    if len(text) <= _MAX_EXCERPT:
        return text
    words, _, _ = text[: _MAX_EXCERPT - 1].rpartition(" ")
    return f"{words if len(words) > _MAX_EXCERPT // 2 else text[: _MAX_EXCERPT - 2]} …"  # not all scripts have spaces


def about(id: str) -> str:
    """Return the tag of everything published about an observation."""
    return f"about:{id}"


@daemon("router")
@click.option(
    "--threshold", type=click.FloatRange(0, 100), metavar="N", default=THRESHOLD, help="Suggest from this urgency on."
)
@file_option(
    "--rules",
    default=lambda: shipped("router.yaml"),
    show_default="the shipped one",
    help="The rules for urgency, and for active alerts.",
)
def main(daemon: Daemon, threshold: float, rules: Path) -> None:
    """Rank the observations of the page by urgency, and suggest an action for urgent ones."""
    table = read_router_rules(rules)

    def route(bus: Bus, stop: threading.Event) -> None:
        warn_of_types(table.types, bus, rules)
        with bus.view(daemon.page) as view:
            limit = bus.settings.max_observations
            Router(bus.page(daemon.page), view, threshold, table, max_observations=limit).run(stop)

    daemon.serve(route)


if __name__ == "__main__":
    main()
