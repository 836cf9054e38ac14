"""The evaluator resolves complete observations and sends doubtful ones to review."""

import gc
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog

from daemons.completion import Sign, parse_completion, read_completion
from daemons.evaluator import Evaluator
from daemons.router import FOR_EXECUTOR, SUGGESTION, about
from scratchbus import Bus
from scratchbus.errors import PositionLost, RulesError
from scratchbus.settings import shipped
from tests.waiting import eventually

QUIET_FOR = timedelta(minutes=10)


SHIPPED = read_completion(shipped("completion.yaml"))


@pytest.fixture
def act(page):
    """Act on an observation as an executor does."""

    def act_on(id, outcome="done", action="block:192.0.2.1"):
        suggestion = page.add(SUGGESTION, "Act on it", evidence=[id], tags=[FOR_EXECUTOR, about(id)])
        acted = page.link(id, action=action)
        page.update(suggestion.id, metadata={"outcome": outcome, "action": action})
        page.resolve(suggestion.id, reason=action)
        return acted

    return act_on


@pytest.fixture
def alert(page, act):
    def add(is_acted_on=True):
        added = page.add("risk_alert", "Failed passwords", dedupe_key="192.0.2.1")
        return act(added.id) if is_acted_on else added

    return add


class Clock:
    """The real time, plus a difference that a test sets."""

    def __init__(self):
        self.ahead = timedelta(0)

    def __call__(self):
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def view(bus):
    with bus.view("main") as opened:
        yield opened


@pytest.fixture
def evaluator(page, view, clock):
    return Evaluator(page, view, SHIPPED, clock=clock)


@pytest.fixture
def evaluate(bus, view):
    """Run a pass of each evaluator once the view is up to date."""

    def run_passes(*evaluators):
        view.wait_for(bus.position())
        for evaluator in evaluators:
            evaluator.run_pass()

    return run_passes


def test_a_quiet_observation_with_a_finished_action_is_resolved(page, alert, clock, evaluator, running):
    quiet = alert()
    with running(evaluator.run):
        clock.ahead = QUIET_FOR
        eventually(lambda: page.get(quiet.id).status == "resolved", "it is resolved")
        later = alert()
        eventually(lambda: page.get(later.id).status == "resolved", "one that was acted on later is resolved too")
    for each in (quiet, later):
        assert page.get(each.id).reason == "done (block:192.0.2.1) and quiet since"
        assert page.history(each.id)[-1].cause == str(each.position)


def test_an_observation_without_an_action_stays_open(page, alert, clock, evaluator, evaluate):
    waiting = alert(is_acted_on=False)
    clock.ahead = QUIET_FOR
    evaluate(evaluator)
    assert page.get(waiting.id).status == "active"


def test_a_repeat_restarts_the_quiet_period(page, alert, clock, evaluator, evaluate):
    busy = alert()
    clock.ahead = QUIET_FOR - timedelta(minutes=2)
    evaluate(evaluator)
    assert page.get(busy.id).status == "active"
    alert(is_acted_on=False)  # the same address again
    heard = page.get(busy.id).updated_at
    clock.ahead = heard + QUIET_FOR - timedelta(minutes=1) - datetime.now(UTC)
    evaluate(evaluator)
    assert page.get(busy.id).status == "active"
    clock.ahead += timedelta(minutes=1)
    evaluate(evaluator)
    assert page.get(busy.id).status == "resolved"
    assert page.get(busy.id).occurrences == 2


def test_a_repeat_after_resolution_is_a_new_observation(page, alert, clock, evaluator, evaluate):
    first = alert()
    clock.ahead = QUIET_FOR
    evaluate(evaluator)
    second = alert(is_acted_on=False)
    assert second.id != first.id
    assert second.occurrences == 1


def test_two_evaluators_resolve_once(page, view, alert, clock, evaluator, evaluate):
    quiet = alert()
    other = Evaluator(page, view, SHIPPED, clock=clock)
    clock.ahead = QUIET_FOR
    evaluate(evaluator, other)
    assert [event.kind for event in page.history(quiet.id)] == ["added", "linked", "status_changed"]


@pytest.mark.slow
def test_a_reopened_observation_is_evaluated_again(page, alert, clock, evaluator, running):
    quiet = alert()
    with running(evaluator.run):
        clock.ahead = QUIET_FOR
        eventually(lambda: page.get(quiet.id).status == "resolved", "it is resolved")
        clock.ahead = timedelta(0)
        page.reopen(quiet.id)
        assert page.get(quiet.id).status == "active"
        clock.ahead = QUIET_FOR
        eventually(lambda: page.get(quiet.id).status == "resolved", "it is resolved again")


# -- completion rules -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["risk_alert", "pending_confirmation", "dependency", "reminder"])
@pytest.mark.parametrize("outcome", ["notified", "failed", "pending"])
def test_only_the_outcome_done_completes(page, act, clock, evaluator, evaluate, type, outcome):
    more = {"remind_at": datetime.now(UTC)} if type == "reminder" else {}
    observation = page.add(type, "It matters", context={"task_id": "t"}, **more)
    act(observation.id, outcome, f"notify:{observation.id}")
    clock.ahead = timedelta(days=1)
    evaluate(evaluator)
    assert page.get(observation.id).status == "active"


def test_a_pending_confirmation_is_resolved_by_its_own_task(page, evaluator, evaluate):
    waiting = page.add("pending_confirmation", "Confirm the address", context={"task_id": "verify_email_123"})
    page.add("observation", "Clicked another link", tags=["confirmed"], context={"task_id": "verify_email_124"})
    page.add("observation", "Opened the mail", context={"task_id": "verify_email_123"})
    evaluate(evaluator)
    assert page.get(waiting.id).status == "active"
    said = page.add(
        "observation", "Clicked", source="mail", tags=["confirmed"], context={"task_id": "verify_email_123"}
    )
    evaluate(evaluator)
    done = page.get(waiting.id)
    assert (done.status, done.reason) == ("resolved", f"mail said so ({said.id})")


def test_an_earlier_confirmation_does_not_count(page, evaluator, evaluate):
    page.add("observation", "Clicked", tags=["confirmed"], context={"task_id": "t"})
    waiting = page.add("pending_confirmation", "Confirm it again", context={"task_id": "t"})
    evaluate(evaluator)
    assert page.get(waiting.id).status == "active"


@pytest.mark.parametrize("flaw", ["refuted", "doubtful", "waiting for review"])
def test_a_doubtful_confirmation_does_not_count(page, evaluator, evaluate, flaw):
    waiting = page.add("pending_confirmation", "Confirm it", context={"task_id": "t"})
    confidence = 0.1 if flaw == "doubtful" else 1.0
    said = page.add("observation", "Yes", tags=["confirmed"], context={"task_id": "t"}, confidence=confidence)
    if flaw == "refuted":
        page.refute(said.id, reason="phishing")
    elif flaw == "waiting for review":
        page.review(said.id)
    evaluate(evaluator)
    assert page.get(waiting.id).status == "active"


def test_a_confirmation_with_just_enough_confidence_counts(page, evaluator, evaluate):
    waiting = page.add("pending_confirmation", "Confirm it", context={"task_id": "t"})
    page.add("observation", "Yes", tags=["confirmed"], context={"task_id": "t"}, confidence=0.3)
    evaluate(evaluator)
    assert page.get(waiting.id).status == "resolved"


def test_a_reopened_confirmation_needs_a_newer_answer(page, evaluator, evaluate):
    def confirm():
        page.add("observation", "Yes", tags=["confirmed"], context={"task_id": "t"})

    waiting = page.add("pending_confirmation", "Confirm it", context={"task_id": "t"})
    confirm()
    evaluate(evaluator)
    assert page.get(waiting.id).status == "resolved"
    page.reopen(waiting.id, reason="that was someone else")
    evaluate(evaluator)
    assert page.get(waiting.id).status == "active"
    confirm()
    evaluate(evaluator)
    assert page.get(waiting.id).status == "resolved"


def test_an_unreadable_history_skips_only_its_observation(page, evaluator, evaluate, monkeypatch):
    waiting = page.add("pending_confirmation", "Confirm it", context={"task_id": "t"})
    page.add("observation", "Yes", tags=["confirmed"], context={"task_id": "t"})
    evaluate(evaluator)
    page.reopen(waiting.id)
    other = page.add("dependency", "It needs nothing", metadata={"met": True})

    def lost(id):
        raise PositionLost("these events were archived, and there is no archive_url here")

    with monkeypatch.context() as patched:
        patched.setattr(page, "history", lost)
        evaluate(evaluator)
    assert page.get(waiting.id).status == "active"
    assert page.get(other.id).status == "resolved"


def test_the_cost_of_a_pass_is_linear_in_confirmations(page, evaluator, evaluate, monkeypatch):
    asked, key_of = [], Sign.key

    def key(sign, one):
        asked.append(one.id)
        return key_of(sign, one)

    monkeypatch.setattr(Sign, "key", key)
    for number in range(20):
        page.add("pending_confirmation", f"Confirm {number}", context={"task_id": f"t{number}"})
        page.add("observation", "No", tags=["confirmed"], context={"task_id": f"other{number}"})
    evaluate(evaluator)
    assert len(asked) == 40


def test_a_confirmation_without_a_task_stays_open(page, evaluator, evaluate):
    waiting = page.add("pending_confirmation", "Confirm something")
    page.add("observation", "Clicked", tags=["confirmed"])
    evaluate(evaluator)
    assert page.get(waiting.id).status == "active"


def test_a_dependency_is_resolved_when_its_field_is_set(page, evaluator, evaluate):
    blocked = page.add("dependency", "The schema has to be migrated")
    evaluate(evaluator)
    assert page.get(blocked.id).status == "active"
    page.update(blocked.id, metadata={"met": True})
    evaluate(evaluator)
    assert (page.get(blocked.id).status, page.get(blocked.id).reason) == ("resolved", "metadata.met is True")


def test_a_pending_action_completes_once_its_outcome_is_done(page, act, clock, evaluator, evaluate):
    alert = page.add("risk_alert", "A leak")
    act(alert.id, "pending", "ticket:17")
    clock.ahead = QUIET_FOR
    evaluate(evaluator)
    assert page.get(alert.id).status == "active"
    (suggestion,) = page.list(type=SUGGESTION)
    page.update(page.reopen(suggestion.id).id, metadata={**suggestion.metadata, "outcome": "done"})
    evaluate(evaluator)
    assert page.get(alert.id).reason == "done (ticket:17) and quiet since"
    assert page.get(suggestion.id).status == "resolved"


def test_a_type_can_be_complete_when_quiet(page, view, clock, evaluate):
    rules = parse_completion("complete: {observation: [{quiet_for: 1h}]}", "completion.yaml")
    one, other = page.add("observation", "It rains"), page.add("contextual_insight", "They like rain")
    clock.ahead = timedelta(hours=1)
    evaluate(Evaluator(page, view, rules, clock=clock))
    assert (page.get(one.id).status, page.get(one.id).reason) == ("resolved", "quiet")
    assert page.get(other.id).status == "active"


# -- review -----------------------------------------------------------------------------------------------------------


def test_low_confidence_waits_for_review_until_approved(page, evaluator, evaluate):
    doubtful = page.add("observation", "The build may be slow", confidence=0.2)
    evaluate(evaluator)
    waiting = page.get(doubtful.id)
    assert (waiting.status, waiting.reason) == ("pending_review", "its confidence of 0.2 is below 0.3")
    evaluate(evaluator)
    assert page.get(doubtful.id).version == waiting.version
    page.update(doubtful.id, metadata={"approved": True})
    evaluate(evaluator)
    assert (page.get(doubtful.id).status, page.get(doubtful.id).reason) == ("active", "approved")
    evaluate(evaluator)
    assert page.get(doubtful.id).status == "active"


def test_a_claim_that_delays_a_change_is_logged_once(bus, page, evaluator, evaluate):
    doubtful = page.add("observation", "The build may be slow", confidence=0.2)
    with Bus.connect(bus.settings.url, source="worker") as other:
        other.page().claim(doubtful.id)
        with structlog.testing.capture_logs() as logged:
            for _ in range(3):
                evaluate(evaluator)
    assert [each["event"] for each in logged] == ["left unchanged"]
    assert (page.get(doubtful.id).status, page.get(doubtful.id).claim.by) == ("active", "worker")


def test_an_approval_counts_once(page, evaluator, evaluate):
    doubtful = page.add("observation", "The build may be slow", confidence=0.2)
    evaluate(evaluator)
    page.update(doubtful.id, metadata={"approved": True})
    evaluate(evaluator)
    assert page.get(doubtful.id).status == "active"
    page.review(doubtful.id, reason="I do not believe it any more")
    evaluate(evaluator)
    assert page.get(doubtful.id).status == "pending_review"


def test_a_later_contradiction_overrides_an_approval(page, evaluator, evaluate):
    said = page.add("observation", "They drink coffee", metadata={"approved": True})
    evaluate(evaluator)
    page.add("observation", "They sent it back", tags=[f"contradicts:{said.id}"])
    evaluate(evaluator)
    assert page.get(said.id).status == "pending_review"


def test_a_suggestion_is_retried_once_per_approval(page, view, evaluator, evaluate):
    suggestion = page.add(SUGGESTION, "Act on it", tags=[FOR_EXECUTOR])
    page.review(suggestion.id, reason="there is no tool for it")
    page.update(suggestion.id, metadata={"approved": True})
    evaluate(evaluator)
    assert page.get(suggestion.id).status == "active"
    page.review(suggestion.id, reason="there still is none")
    evaluate(evaluator)
    assert page.get(suggestion.id).status == "pending_review"


def test_reopening_approves_an_observation(page, evaluator, evaluate):
    doubtful = page.add("observation", "The build may be slow", confidence=0.2)
    evaluate(evaluator)
    page.reopen(doubtful.id)
    evaluate(evaluator)
    assert page.get(doubtful.id).status == "active"


def test_a_contradicted_observation_waits_for_review(page, evaluator, evaluate):
    said = page.add("contextual_insight", "They drink coffee")
    other = page.add("observation", "They sent the coffee back", source="waiter", tags=[f"contradicts:{said.id}"])
    evaluate(evaluator)
    assert (page.get(said.id).status, page.get(said.id).reason) == (
        "pending_review", f"contradicted by waiter ({other.id})",
    )  # fmt: skip
    page.reopen(said.id)
    evaluate(evaluator)
    assert page.get(said.id).status == "active"
    page.add("observation", "And again", tags=[f"contradicts:{said.id}"])
    evaluate(evaluator)
    assert page.get(said.id).status == "pending_review"


def test_an_observation_whose_evidence_is_gone_waits_for_review(page, evaluator, evaluate):
    grounds = [page.add("observation", f"Ground {n}") for n in range(2)]
    pattern = page.add("pattern_detected", "A pattern", evidence=[each.id for each in grounds])
    kept = page.add("pattern_detected", "Another", evidence=[page.add("observation", "Dealt with").id])
    page.resolve(kept.evidence[0])
    page.archive(kept.evidence[0], reason="put away")
    page.archive(grounds[0].id)
    evaluate(evaluator)
    assert page.get(pattern.id).status == "active"
    page.archive(grounds[1].id)
    evaluate(evaluator)
    assert page.get(pattern.id).status == "pending_review"
    assert page.get(pattern.id).reason.startswith("its evidence is gone")
    assert page.get(kept.id).status == "active"


def test_a_reason_with_much_evidence_is_shortened(page, evaluator, evaluate):
    """A reason has at most 4 KiB; the observation stayed active for ever."""
    grounds = []
    for number in range(180):
        grounds.append(page.add("observation", f"Ground {number}").id)
        page.archive(grounds[-1])
    pattern = page.add("pattern_detected", "A pattern", evidence=grounds)
    evaluate(evaluator)
    found = page.get(pattern.id)
    assert (found.status, found.reason[:22], found.reason[-2:]) == ("pending_review", "its evidence is gone (", " …")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "'complete' is missing"),
        ("complete:\n  risk_alert:\n    - {}\n", 3, "would hold for all"),
        ("complete:\n  risk_alert:\n    - outcome:\n", 3, "would hold for all"),
        ("complete:\n  risk_alert:\n    - field: {}\n", 3, "would hold for all"),
        ("complete:\n  risk_alert:\n    - event: {type: observation, same: []}\n", 3, "is empty"),
        ("complete:\n  risk_alert:\n    - outcome: gone\n", 3, "done.*notified.*failed.*pending"),
        ("complete:\n  risk_alert:\n    - quiet_for: soon\n", 3, "soon"),
        ("complete:\n  risk_alert:\n    - field: {contxt.a: 1}\n", 3, "contxt.a.*context.<key>"),
        ("complete:\n  risk_alert:\n    - event: {type: observation}\n", 3, "'same' is missing"),
        ("complete:\nreview:\n  confidence_below: 2\n", 3, "confidence"),
    ],
)
def test_an_error_in_the_rules_names_its_line(text, line, says):
    with pytest.raises(RulesError, match=says) as caught:
        parse_completion(text, "completion.yaml")
    assert caught.value.line == line


def test_only_the_last_history_of_an_observation_is_kept(page, alert, evaluator, evaluate, monkeypatch):
    read, history = list[weakref.ref[Any]](), page.history

    def recording(id):
        events = history(id)
        read.extend(map(weakref.ref, events))
        return events

    monkeypatch.setattr(page, "history", recording)
    added = alert()
    page.resolve(added.id)
    page.reopen(added.id)
    for _ in range(5):
        page.add("risk_alert", "Failed passwords", dedupe_key="192.0.2.1")
        evaluate(evaluator)
    gc.collect()
    assert sum(event() is not None for event in read) <= len(history(added.id)) < len(read)
