"""The evaluator resolves what is complete, and sends to review what is doubtful."""

from datetime import UTC, datetime, timedelta

import pytest

from daemons.completion import Sign, parse_completion, read_completion
from daemons.evaluator import Evaluator
from daemons.router import FOR_EXECUTOR, SUGGESTION, about
from scratchbus.errors import PositionLost, RulesError
from scratchbus.settings import shipped
from tests.waiting import eventually

QUIET_FOR = timedelta(minutes=10)


SHIPPED = read_completion(shipped("completion.yaml"))


@pytest.fixture
def act(page):
    """Do what an executor does about an observation."""

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
    """A clock that is set by hand, and begins at the real time."""

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
def look(bus, view):
    """Have evaluators look around, once their view has seen all there is."""

    def run_passes(*evaluators):
        view.wait_for(bus.position())
        for evaluator in evaluators:
            evaluator.run_pass()

    return run_passes


def test_what_was_acted_on_and_is_quiet_is_resolved(page, alert, clock, evaluator, running):
    quiet = alert()
    with running(evaluator.run):
        clock.ahead = QUIET_FOR
        eventually(lambda: page.get(quiet.id).status == "resolved", "it is resolved")
    assert page.get(quiet.id).reason == "done (block:192.0.2.1) and quiet since"
    assert page.history(quiet.id)[-1].cause == str(quiet.position)


def test_what_is_acted_on_later_is_resolved_too(page, alert, clock, evaluator, running):
    with running(evaluator.run):
        later = alert()
        clock.ahead = QUIET_FOR
        eventually(lambda: page.get(later.id).status == "resolved", "it is resolved")


def test_what_nobody_acted_on_stays_open(page, alert, clock, evaluator, look):
    waiting = alert(is_acted_on=False)
    clock.ahead = QUIET_FOR
    look(evaluator)
    assert page.get(waiting.id).status == "active"


def test_what_is_repeated_is_not_quiet(page, alert, clock, evaluator, look):
    busy = alert()
    clock.ahead = QUIET_FOR - timedelta(seconds=1)
    look(evaluator)
    assert page.get(busy.id).status == "active"
    alert(is_acted_on=False)  # the same address again
    heard = page.get(busy.id).updated_at
    clock.ahead = heard + QUIET_FOR - timedelta(milliseconds=500) - datetime.now(UTC)
    look(evaluator)
    assert page.get(busy.id).status == "active"
    clock.ahead += timedelta(seconds=1)
    look(evaluator)
    assert page.get(busy.id).status == "resolved"
    assert page.get(busy.id).occurrences == 2


def test_one_that_comes_back_after_it_was_resolved_is_a_new_observation(page, alert, clock, evaluator, look):
    first = alert()
    clock.ahead = QUIET_FOR
    look(evaluator)
    second = alert(is_acted_on=False)
    assert second.id != first.id
    assert second.occurrences == 1


def test_two_evaluators_resolve_once(page, view, alert, clock, evaluator, look):
    quiet = alert()
    other = Evaluator(page, view, SHIPPED, clock=clock)
    clock.ahead = QUIET_FOR
    look(evaluator, other)
    assert [event.kind for event in page.history(quiet.id)] == ["added", "linked", "status_changed"]


@pytest.mark.slow
def test_one_that_was_reopened_is_evaluated_again(page, alert, clock, evaluator, running):
    quiet = alert()
    with running(evaluator.run):
        clock.ahead = QUIET_FOR
        eventually(lambda: page.get(quiet.id).status == "resolved", "it is resolved")
        clock.ahead = timedelta(0)
        page.reopen(quiet.id)
        assert page.get(quiet.id).status == "active"
        clock.ahead = QUIET_FOR
        eventually(lambda: page.get(quiet.id).status == "resolved", "it is resolved again")


# -- what completes what ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["risk_alert", "pending_confirmation", "dependency", "reminder"])
@pytest.mark.parametrize("outcome", ["notified", "failed", "pending"])
def test_nothing_is_complete_because_someone_was_told(page, act, clock, evaluator, look, type, outcome):
    more = {"remind_at": datetime.now(UTC)} if type == "reminder" else {}
    told = page.add(type, "It matters", context={"task_id": "t"}, **more)
    act(told.id, outcome, f"notify:{told.id}")
    clock.ahead = timedelta(days=1)
    look(evaluator)
    assert page.get(told.id).status == "active"


def test_a_confirmation_is_complete_when_someone_confirms_the_same_task(page, evaluator, look):
    waiting = page.add("pending_confirmation", "Confirm the address", context={"task_id": "verify_email_123"})
    page.add("observation", "Clicked another link", tags=["confirmed"], context={"task_id": "verify_email_124"})
    page.add("observation", "Opened the mail", context={"task_id": "verify_email_123"})
    look(evaluator)
    assert page.get(waiting.id).status == "active"
    said = page.add(
        "observation", "Clicked", source="mail", tags=["confirmed"], context={"task_id": "verify_email_123"}
    )
    look(evaluator)
    done = page.get(waiting.id)
    assert (done.status, done.reason) == ("resolved", f"mail said so ({said.id})")


def test_what_was_said_before_confirms_nothing_that_was_asked_later(page, evaluator, look):
    page.add("observation", "Clicked", tags=["confirmed"], context={"task_id": "t"})
    waiting = page.add("pending_confirmation", "Confirm it again", context={"task_id": "t"})
    look(evaluator)
    assert page.get(waiting.id).status == "active"


@pytest.mark.parametrize("untrue", ["refuted", "doubtful", "waiting for review"])
def test_what_is_not_believed_confirms_nothing(page, evaluator, look, untrue):
    waiting = page.add("pending_confirmation", "Confirm it", context={"task_id": "t"})
    confidence = 0.1 if untrue == "doubtful" else 1.0
    said = page.add("observation", "Yes", tags=["confirmed"], context={"task_id": "t"}, confidence=confidence)
    if untrue == "refuted":
        page.refute(said.id, reason="phishing")
    elif untrue == "waiting for review":
        page.review(said.id)
    look(evaluator)
    assert page.get(waiting.id).status == "active"


def test_what_someone_reopens_is_complete_only_by_what_happens_since(page, evaluator, look):
    def confirm():
        page.add("observation", "Yes", tags=["confirmed"], context={"task_id": "t"})

    waiting = page.add("pending_confirmation", "Confirm it", context={"task_id": "t"})
    confirm()
    look(evaluator)
    assert page.get(waiting.id).status == "resolved"
    page.reopen(waiting.id, reason="that was someone else")
    look(evaluator)
    assert page.get(waiting.id).status == "active"
    confirm()
    look(evaluator)
    assert page.get(waiting.id).status == "resolved"


def test_a_history_that_cannot_be_read_completes_nothing_and_stops_nothing(page, evaluator, look, monkeypatch):
    waiting = page.add("pending_confirmation", "Confirm it", context={"task_id": "t"})
    page.add("observation", "Yes", tags=["confirmed"], context={"task_id": "t"})
    look(evaluator)
    page.reopen(waiting.id)
    other = page.add("dependency", "It needs nothing", metadata={"met": True})

    def lost(id):
        raise PositionLost("these events were archived, and there is no archive_url here")

    with monkeypatch.context() as patched:
        patched.setattr(page, "history", lost)
        look(evaluator)
    assert page.get(waiting.id).status == "active"
    assert page.get(other.id).status == "resolved"


def test_a_look_at_many_confirmations_takes_no_longer_for_each(page, evaluator, look, monkeypatch):
    asked, key_of = [], Sign.key

    def key(sign, one):
        asked.append(one.id)
        return key_of(sign, one)

    monkeypatch.setattr(Sign, "key", key)
    for number in range(20):
        page.add("pending_confirmation", f"Confirm {number}", context={"task_id": f"t{number}"})
        page.add("observation", "No", tags=["confirmed"], context={"task_id": f"other{number}"})
    look(evaluator)
    assert len(asked) == 40


def test_a_confirmation_without_a_task_is_confirmed_by_hand_only(page, evaluator, look):
    waiting = page.add("pending_confirmation", "Confirm something")
    page.add("observation", "Clicked", tags=["confirmed"])
    look(evaluator)
    assert page.get(waiting.id).status == "active"


def test_a_dependency_is_complete_when_its_field_says_so(page, evaluator, look):
    blocked = page.add("dependency", "The schema has to be migrated")
    look(evaluator)
    assert page.get(blocked.id).status == "active"
    page.update(blocked.id, metadata={"met": True})
    look(evaluator)
    assert (page.get(blocked.id).status, page.get(blocked.id).reason) == ("resolved", "metadata.met is True")


def test_an_action_that_was_pending_completes_once_its_end_is_known(page, act, clock, evaluator, look):
    alert = page.add("risk_alert", "A leak")
    act(alert.id, "pending", "ticket:17")
    clock.ahead = QUIET_FOR
    look(evaluator)
    assert page.get(alert.id).status == "active"
    (suggestion,) = page.list(type=SUGGESTION)
    page.update(page.reopen(suggestion.id).id, metadata={**suggestion.metadata, "outcome": "done"})
    look(evaluator)
    assert page.get(alert.id).reason == "done (ticket:17) and quiet since"
    assert page.get(suggestion.id).status == "resolved"


def test_a_type_may_be_complete_when_it_is_quiet(page, view, clock, look):
    rules = parse_completion("complete: {observation: [{quiet_for: 1h}]}", "completion.yaml")
    one, other = page.add("observation", "It rains"), page.add("contextual_insight", "They like rain")
    clock.ahead = timedelta(hours=1)
    look(Evaluator(page, view, rules, clock=clock))
    assert (page.get(one.id).status, page.get(one.id).reason) == ("resolved", "quiet")
    assert page.get(other.id).status == "active"


# -- what is doubtful -------------------------------------------------------------------------------------------------


def test_what_has_little_confidence_waits_for_review_until_it_is_approved(page, evaluator, look):
    doubtful = page.add("observation", "The build may be slow", confidence=0.2)
    look(evaluator)
    waiting = page.get(doubtful.id)
    assert (waiting.status, waiting.reason) == ("pending_review", "its confidence of 0.2 is below 0.3")
    look(evaluator)
    assert page.get(doubtful.id).version == waiting.version
    page.update(doubtful.id, metadata={"approved": True})
    look(evaluator)
    assert (page.get(doubtful.id).status, page.get(doubtful.id).reason) == ("active", "approved")
    look(evaluator)
    assert page.get(doubtful.id).status == "active"


def test_an_approval_counts_once(page, evaluator, look):
    doubtful = page.add("observation", "The build may be slow", confidence=0.2)
    look(evaluator)
    page.update(doubtful.id, metadata={"approved": True})
    look(evaluator)
    assert page.get(doubtful.id).status == "active"
    page.review(doubtful.id, reason="I do not believe it any more")
    look(evaluator)
    assert page.get(doubtful.id).status == "pending_review"


def test_what_was_approved_is_doubted_when_it_is_contradicted_later(page, evaluator, look):
    said = page.add("observation", "They drink coffee", metadata={"approved": True})
    look(evaluator)
    page.add("observation", "They sent it back", tags=[f"contradicts:{said.id}"])
    look(evaluator)
    assert page.get(said.id).status == "pending_review"


def test_a_suggestion_that_cannot_be_acted_on_is_tried_once_for_each_approval(page, view, evaluator, look):
    suggestion = page.add(SUGGESTION, "Act on it", tags=[FOR_EXECUTOR])
    page.review(suggestion.id, reason="there is no tool for it")
    page.update(suggestion.id, metadata={"approved": True})
    look(evaluator)
    assert page.get(suggestion.id).status == "active"
    page.review(suggestion.id, reason="there still is none")
    look(evaluator)
    assert page.get(suggestion.id).status == "pending_review"


def test_what_someone_reopened_is_approved(page, evaluator, look):
    doubtful = page.add("observation", "The build may be slow", confidence=0.2)
    look(evaluator)
    page.reopen(doubtful.id)
    look(evaluator)
    assert page.get(doubtful.id).status == "active"


def test_what_is_contradicted_waits_for_review(page, evaluator, look):
    said = page.add("contextual_insight", "They drink coffee")
    other = page.add("observation", "They sent the coffee back", source="waiter", tags=[f"contradicts:{said.id}"])
    look(evaluator)
    assert (page.get(said.id).status, page.get(said.id).reason) == (
        "pending_review", f"contradicted by waiter ({other.id})",
    )  # fmt: skip
    page.reopen(said.id)
    look(evaluator)
    assert page.get(said.id).status == "active"
    page.add("observation", "And again", tags=[f"contradicts:{said.id}"])
    look(evaluator)
    assert page.get(said.id).status == "pending_review"


def test_what_rests_on_nothing_any_more_waits_for_review(page, evaluator, look):
    grounds = [page.add("observation", f"Ground {n}") for n in range(2)]
    pattern = page.add("pattern_detected", "A pattern", evidence=[each.id for each in grounds])
    kept = page.add("pattern_detected", "Another", evidence=[page.add("observation", "Dealt with").id])
    page.resolve(kept.evidence[0])
    page.archive(kept.evidence[0], reason="put away")
    page.archive(grounds[0].id)
    look(evaluator)
    assert page.get(pattern.id).status == "active"
    page.archive(grounds[1].id)
    look(evaluator)
    assert page.get(pattern.id).status == "pending_review"
    assert page.get(pattern.id).reason.startswith("its evidence is gone")
    assert page.get(kept.id).status == "active"


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
def test_a_mistake_in_the_rules_is_named_with_its_line(text, line, says):
    with pytest.raises(RulesError, match=says) as caught:
        parse_completion(text, "completion.yaml")
    assert caught.value.line == line
