"""The evaluator: resolves observations that are complete, and sends doubtful ones to review."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import structlog

from scratchbus import AnyEvent, Bus, Observation, Page, Position, View, because, events
from scratchbus.daemon import Daemon, daemon, duration_option, file_option
from scratchbus.errors import (
    ArchiveDamaged,
    ArchiveForeign,
    Conflict,
    InvalidField,
    InvalidTransition,
    LogError,
    NotFound,
)
from scratchbus.settings import shipped

if __name__ == "__main__" and not __package__:  # `python daemons/evaluator.py`: name the package (PEP 366)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "daemons"

from .completion import OUTCOME, CompletionRule, CompletionRules, Sign, read_completion, value_of, warn_of_types
from .router import SUGGESTION, unrefused

CONTRADICTS = "contradicts:"
"""The prefix of a tag that names the observation it contradicts."""

APPROVED = "approved"
"""The metadata of an observation that someone has reviewed and approved."""

_GONE = ("expired", "displaced", "archived", "refuted")  # evidence that ended in this way no longer counts
REVIEW = "pending_review"
"""The status of observations that wait for review."""

_DONE = {"resolve": "resolved", "review": "sent to review", "reopen": "approved"}
_MAX_REMEMBERED = 10_000  # histories
_MAX_REASON = 1_000  # characters, since a reason may list up to 1,000 ids, or an action of any length
_LOOK_INTERVAL = 1.0  # seconds between two looks

logger = structlog.get_logger(__name__)


class Evaluator:
    """Reviews the open observations of a page for completion and for accuracy. Any number of evaluators may run.

    Observations that are complete by a rule of their type are resolved, with that as the reason. Doubtful ones wait for
    review until someone approves it. A repeated observation is not quiet: while it is open, each sighting counts up its
    occurrences and renews it.
    """

    def __init__(
        self,
        page: Page,
        view: View,
        rules: CompletionRules,
        quiet_for: timedelta | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._page = page
        self._view = view
        self._rules = rules
        self._quiet_for = quiet_for  # overrides the rules
        self._clock = clock
        self._histories = _Histories(page)
        self._failed: dict[tuple[str, str], tuple[int, bool]] = {}  # the version, and whether to try again

    def run(self, stop: threading.Event) -> None:
        """Evaluate until `stop` is set."""
        while not stop.is_set():
            self.run_pass()
            stop.wait(_LOOK_INTERVAL)

    def run_pass(self) -> None:
        """Evaluate every open observation of the page."""
        current = _Pass(unrefused(self._view), self._histories, self._rules, self._quiet_for, self._clock())
        versions = {observation.id: observation.version for observation in current.open}
        self._failed = {key: failed for key, failed in self._failed.items() if versions.get(key[0]) == failed[0]}
        for observation in current.open:
            if observation.claim is not None and observation.type == SUGGESTION:
                continue  # its executor is at work
            if reason := current.completion(observation):
                self._change(observation, "resolve", reason)
            elif observation.status != REVIEW:
                if doubt := current.doubt(observation):
                    self._change(observation, "review", doubt)
            elif observation.metadata.get(APPROVED) is True and self._histories.is_approved(observation):
                self._change(observation, "reopen", "approved")

    def _change(self, observation: Observation, verb: str, reason: str) -> None:
        change = {"resolve": self._page.resolve, "review": self._page.review, "reopen": self._page.reopen}[verb]
        if self._failed.get((observation.id, verb)) == (observation.version, False):
            return
        reason = reason if len(reason) <= _MAX_REASON else f"{reason[:_MAX_REASON]} …"
        try:
            with because(observation.position):
                change(
                    observation.id,
                    reason=reason,
                    expected_version=observation.version,
                    event_id=f"evaluator:{observation.id}:{observation.version}:{verb}",
                )
        except (Conflict, InvalidField, NotFound) as problem:
            may_change = not isinstance(problem, (InvalidTransition, InvalidField))  # a claim ends
            failed = observation.version, may_change
            if self._failed.get((observation.id, verb)) != failed:
                log = logger.info if may_change else logger.warning
                log("left unchanged", observation=observation.id, to=verb, reason=str(problem))
            self._failed[observation.id, verb] = failed
        else:
            logger.info(_DONE[verb], observation=observation.id, reason=reason)


class _Histories:
    """The histories of observations; each is read once per version, and only that of the last version is kept.

    A history that cannot be read, because it was archived elsewhere or erased, counts as empty.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._cached: OrderedDict[str, tuple[int, list[AnyEvent]]] = OrderedDict()

    def _events(self, observation: Observation) -> list[AnyEvent]:
        version, found = self._cached.get(observation.id, (0, []))
        if version != observation.version:
            found = self._read(observation.id)
            self._cached[observation.id] = observation.version, found
        self._cached.move_to_end(observation.id)
        if len(self._cached) > _MAX_REMEMBERED:
            self._cached.popitem(last=False)
        return found

    def _read(self, id: str) -> list[AnyEvent]:
        try:
            return self._page.history(id)
        except (NotFound, LogError, ArchiveDamaged, ArchiveForeign) as problem:
            logger.warning("cannot read a history", observation=id, reason=str(problem))
            return []

    def _status_changes(self, observation: Observation) -> list[events.StatusChanged]:
        return [each for each in self._events(observation) if isinstance(each, events.StatusChanged)]

    def since(self, observation: Observation) -> Position:
        """Return when its status changed last; where that is not known, when it changed last at all."""
        if not self._events(observation):
            return observation.position
        changes = self._status_changes(observation)
        return changes[-1].position if changes else observation.added

    def is_approved(self, observation: Observation) -> bool:
        """Return whether someone approved it since its status changed last."""
        since = self.since(observation)
        return any(
            isinstance(each, events.Updated)
            and each.position > since
            and (each.changes.get("metadata") or {}).get(APPROVED) is True
            for each in self._events(observation)
        )

    def was_closed(self, observation: Observation) -> bool:
        """Return whether it was dealt with before it was archived."""
        return any(each.status_class == "closed" for each in self._status_changes(observation))


class _Pass:
    """The page at one time, judged by the rules."""

    def __init__(
        self, view: View, histories: _Histories, rules: CompletionRules, quiet_for: timedelta | None, now: datetime
    ) -> None:
        self.open = [observation for observation in view.list(status=None, limit=None) if observation.is_open]
        self._view = view
        self._histories = histories
        self._rules = rules
        self._quiet_for = quiet_for
        self._now = now
        self._signs = cache(self._find_signs)
        self._contradictions: dict[str, Observation] = {}
        for observation in self.open:
            for tag in observation.tags:
                if tag.startswith(CONTRADICTS) and self._counts(observation):
                    self._contradictions.setdefault(tag.removeprefix(CONTRADICTS), observation)  # the newest
        self._suggestions: dict[str, list[Observation]] = defaultdict(list)
        for observation in view.list(type=SUGGESTION, limit=None):
            if observation.evidence:
                self._suggestions[observation.evidence[0]].append(observation)

    def _counts(self, observation: Observation) -> bool:
        """Return whether an observation counts as evidence: it is neither doubtful nor refuted."""
        least = self._rules.review.confidence_below or 0.0
        return observation.status != REVIEW and observation.confidence >= least and observation.reason_code != "refuted"

    def _find_signs(self, sign: Sign) -> dict[str, Observation]:
        """Return the newest sign for each combination of the values that have to be the same."""
        found: dict[str, Observation] = {}
        for observation in self._view.list(type=sign.type, tags=list(sign.tags), limit=None):
            if self._counts(observation) and (key := sign.key(observation)):
                found.setdefault(key, observation)
        return found

    def completion(self, observation: Observation) -> str:
        """Return why an observation is complete, or "" if it is not.

        A reopened observation is complete only by later events.
        """
        rules = self._rules.complete.get(observation.type, ())
        if not rules:
            return ""
        since = self._histories.since(observation) if observation.reason_code == "reopened" else observation.added
        for rule in rules:
            if (reasons := self._reasons_of(rule, observation, since)) is not None:
                return " and ".join(reasons)
        return ""

    def _reasons_of(self, rule: CompletionRule, observation: Observation, since: Position) -> list[str] | None:
        """Return how a rule has been met since then; None if it has not."""
        reasons = []
        if rule.outcome is not None:
            acted = [each for each in self._suggestions[observation.id] if each.metadata.get(OUTCOME) == rule.outcome]
            if rule.quiet_for is None:  # else it has to be quiet since it was reopened
                acted = [each for each in acted if each.position > since]
            if not acted:
                return None
            reasons.append(f"{rule.outcome} ({acted[0].metadata.get('action', acted[0].id)})")
        if rule.event is not None:
            sign = self._signs(rule.event).get(rule.event.key(observation))
            if sign is None or sign.added <= since:
                return None
            reasons.append(f"{sign.source} said so ({sign.id})")
        for name, value in rule.field.items():
            if value_of(observation, name) != value or (since > observation.added and observation.position <= since):
                return None
            reasons.append(f"{name} is {value}")
        if rule.quiet_for is not None:
            if observation.updated_at > self._now - (self._quiet_for or rule.quiet_for):
                return None
            reasons.append("quiet since" if reasons else "quiet")
        return reasons

    def doubt(self, observation: Observation) -> str:
        """Return why an observation is doubtful, or "" if it is not, or if it was approved since."""
        review = self._rules.review
        if observation.type == SUGGESTION:
            return ""
        is_approved = observation.reason_code == "reopened" or observation.metadata.get(APPROVED) is True
        contradiction = self._contradictions.get(observation.id)
        if (
            review.contradicted
            and contradiction is not None
            and not (is_approved and contradiction.added < observation.position)
        ):
            return f"contradicted by {contradiction.source} ({contradiction.id})"
        if is_approved:
            return ""
        if review.confidence_below is not None and observation.confidence < review.confidence_below:
            return f"its confidence of {observation.confidence:g} is below {review.confidence_below:g}"
        if review.evidence_gone and observation.evidence and all(map(self._is_gone, observation.evidence)):
            return f"its evidence is gone ({', '.join(observation.evidence)})"
        return ""

    def _is_gone(self, id: str) -> bool:
        found = self._view.get(id)
        if found is None or found.status_class != "final" or found.reason_code not in _GONE:
            return False
        return found.reason_code != "archived" or not self._histories.was_closed(found)


@daemon("evaluator")
@file_option(
    "--rules",
    default=lambda: shipped("completion.yaml"),
    show_default="the shipped one",
    help="The rules for complete and doubtful observations.",
)
@duration_option("--quiet-for", default=None, help="The quiet time, instead of that in the rules.")
def main(daemon: Daemon, rules: Path, quiet_for: timedelta | None) -> None:
    """Resolve observations that are complete, and send doubtful ones to review."""
    table = read_completion(rules)

    def evaluate(bus: Bus, stop: threading.Event) -> None:
        warn_of_types({*table.complete}, bus, rules)
        with bus.view(daemon.page) as view:
            Evaluator(bus.page(daemon.page), view, table, quiet_for).run(stop)

    daemon.serve(evaluate)


if __name__ == "__main__":
    main()
