"""The router suggests one action for each urgent observation."""

import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from daemons.executor import Executor
from daemons.router import CONFIRMATION, EXECUTOR, FOR_EXECUTOR, SUGGESTION, Router
from daemons.router_rules import parse_router_rules, read_router_rules
from daemons.tools import read_tools
from scratchbus import Bus, Change
from scratchbus.errors import InvalidTTL, RulesError
from scratchbus.scheduling.expiry import sweep
from scratchbus.settings import shipped
from tests.waiting import eventually


@pytest.fixture
def alert(page):
    def add(address="192.0.2.1", times=1):
        content = f"Failed passwords from {address}"
        return page.add("risk_alert", content, confidence=0.6, dedupe_key=address, times=times, tags=["ssh"])

    return add


@pytest.fixture
def view(bus):
    with bus.view("main") as opened:
        yield opened


@pytest.fixture
def router(page, view):
    return Router(page, view)


@pytest.fixture
def consider(bus, view):
    """Let each router consider all observations once the view is up to date."""

    def run_passes(*routers):
        view.wait_for(bus.position())
        for router in routers:
            router.consider_all()

    return run_passes


def expire_soon(page, id):
    """Let an observation expire in a moment, which on a busy machine may be over before it is written."""
    while True:
        with suppress(InvalidTTL):
            return page.update(id, expires_at=datetime.now(UTC) + timedelta(milliseconds=20))


def suggestions(page, **filters):
    return page.list(type=SUGGESTION, **filters)


def test_an_urgent_alert_is_the_evidence_of_a_suggestion(page, router, alert, consider):
    urgent = alert(times=5)
    consider(router)
    (suggestion,) = suggestions(page)
    assert suggestion.evidence == [urgent.id]
    assert suggestion.owner == EXECUTOR
    assert suggestion.metadata == {"urgency": 73}
    assert suggestion.content == "Act on: Failed passwords from 192.0.2.1"


def test_suggestions_are_made_in_order_of_urgency(page, router, alert, consider):
    alert("192.0.2.1")
    less, more = alert("192.0.2.2", times=5), alert("192.0.2.3", times=50)
    consider(router)
    assert [one.evidence for one in suggestions(page)[::-1]] == [[more.id], [less.id]]


def test_a_suggestion_names_the_event_that_caused_it(page, router, alert, consider):
    alert()
    repeated = alert(times=5)
    consider(router)
    (suggestion,) = suggestions(page)
    (added,) = page.history(suggestion.id)
    assert added.cause == str(page.history(repeated.id)[-1].position)


def test_an_observation_below_the_threshold_gets_no_suggestion(page, router, alert, consider):
    alert(times=1)
    page.add("contextual_insight", "They are going to the bistro")
    consider(router)
    assert suggestions(page) == []


def test_a_second_pass_suggests_nothing_new(bus, page, view, router, alert, consider):
    alert(times=5)
    consider(router)
    end = bus.position()
    consider(router, Router(page, view))
    assert bus.position() == end


@pytest.mark.parametrize("is_answered", [False, True], ids=["open", "answered"])
@pytest.mark.parametrize("is_repeated", [False, True], ids=["same", "repeated"])
def test_two_routers_make_one_suggestion(page, view, router, alert, consider, is_repeated, is_answered, monkeypatch):
    urgent = alert(times=5)
    consider(router)
    if is_answered:
        page.resolve(suggestions(page)[0].id)
    if is_repeated:
        alert(times=5)
    monkeypatch.setattr(view, "list", lambda **_: [])  # as if it had not yet seen the first suggestion
    consider(Router(page, view))
    (suggestion,) = suggestions(page)
    assert suggestion.evidence == [urgent.id]
    assert suggestion.occurrences == 1


def test_a_linked_observation_gets_no_suggestion(page, router, alert, consider):
    page.link(alert(times=5).id, action="goal-17")
    consider(router)
    assert suggestions(page) == []


def test_a_declined_suggestion_is_not_repeated(page, router, alert, consider):
    urgent = alert(times=5)
    consider(router)
    page.resolve(suggestions(page)[0].id, reason="leave it")
    page.update(urgent.id, confidence=1.0)
    consider(router)
    assert len(suggestions(page)) == 1


def test_an_expired_suggestion_is_made_again(page, view, router, alert, consider):
    urgent = alert(times=5)
    consider(router)
    (first,) = suggestions(page)
    expire_soon(page, first.id)
    eventually(lambda: page.get(first.id).status == "archived", "the suggestion is over")
    consider(router)
    (second,) = suggestions(page, status="active")
    assert second.evidence == [urgent.id]
    consider(Router(page, view))
    assert len(suggestions(page)) == 2


def test_displaced_suggestions_wait_until_the_page_has_room(url, running):
    with Bus.connect(url, source="tester", max_observations=4) as bus, bus.view("main") as view:
        page = bus.page("main")
        for number in range(3):
            page.add("risk_alert", f"alert {number}")
        with running(Router(page, view, max_observations=4).run):
            eventually(lambda: page.count(type=SUGGESTION, status=None) == 3, "each alert was suggested")
            (first,) = suggestions(page, status="active")
            page.link(first.evidence[0], action="blocked")
            page.resolve(first.id)
            eventually(lambda: suggestions(page, status="active"), "a displaced one is suggested again")
            (second,) = suggestions(page, status="active")
            page.update(second.id, metadata={"note": "seen"})
            view.wait_for(bus.position())
        assert second.evidence != first.evidence
        assert page.count(type=SUGGESTION, status=None) == 4


def test_a_displaced_suggestion_is_made_again_on_a_page_with_less_important_observations(url):
    with Bus.connect(url, source="tester", max_observations=2) as bus, bus.view("main") as view:
        page = bus.page("main")
        page.add("risk_alert", "alert")
        router = Router(page, view, max_observations=2)
        view.wait_for(bus.position())
        router.consider_all()
        (displaced,) = suggestions(page)
        more = page.add("risk_alert", "not sure", confidence=0.1)
        view.wait_for(bus.position())
        router.consider_all()
        assert suggestions(page, status="active") == []
        page.resolve(more.id)
        page.add("observation", "less important")
        view.wait_for(bus.position())
        router.consider_all()
        (again,) = suggestions(page, status="active")
        assert again.evidence == displaced.evidence


def test_a_running_router_replaces_an_expired_suggestion(bus, page, router, alert, running):
    alert(times=5)
    with running(router.run):
        eventually(lambda: suggestions(page), "it is suggested")
        (first,) = suggestions(page)
        expire_soon(page, first.id)
        eventually(lambda: page.get(first.id).status == "archived", "the suggestion is over")
        bus.converse(sweep(bus.core))
        eventually(lambda: suggestions(page, status="active"), "it is suggested again")


def test_a_restarted_router_considers_missed_observations(bus, page, alert, running):
    def run(stop):
        with bus.view("main") as view:
            Router(page, view).run(stop)

    with running(run):
        alert("192.0.2.1", times=5)
        eventually(lambda: suggestions(page), "it is suggested")
    missed = alert("192.0.2.2", times=5)
    with running(run):
        eventually(lambda: len(suggestions(page)) == 2, "the missed alert is suggested")
    assert suggestions(page)[0].evidence == [missed.id]


def test_a_router_considers_everything_after_missing_changes(page, view, router, alert, monkeypatch):
    def changes(_):
        view.wait_for(alert(times=5))
        yield Change(None, None, None, "the log was trimmed")

    monkeypatch.setattr(view, "changes", changes)
    router.run(threading.Event())
    assert len(suggestions(page)) == 1


def test_an_alert_becomes_urgent_while_the_router_runs(page, router, alert, running):
    waiting = alert("192.0.2.9", times=5)
    with running(router.run):
        eventually(
            lambda: [each.evidence for each in suggestions(page)] == [[waiting.id]], "the earlier alert is suggested"
        )
        alert("192.0.2.1")
        alert("192.0.2.1")
        other = alert("192.0.2.3", times=5)
        eventually(lambda: len(suggestions(page)) == 2, "a later alert is suggested, so two attempts are not enough")
        assert suggestions(page)[0].evidence == [other.id]
        urgent = alert("192.0.2.1")
        eventually(lambda: len(suggestions(page)) == 3, "the third attempt is enough")
        assert suggestions(page)[0].evidence == [urgent.id]


@pytest.mark.parametrize("text", ["警" * 400, f"警 {'告' * 400}"])
def test_a_long_alert_without_spaces_is_cut(page, router, consider, text):
    page.add("risk_alert", text, confidence=1.0)
    consider(router)
    (suggestion,) = suggestions(page)
    assert suggestion.content == f"Act on: {text[:298]} …"


def test_a_long_alert_is_shortened_in_its_suggestion(page, router, consider):
    page.add("risk_alert", "very long " * 5_000)
    consider(router)
    assert len(suggestions(page)[0].content) < 320


# -- the shipped rules ------------------------------------------------------------------------------------------------

SHIPPED = read_router_rules(shipped("router.yaml"))


@pytest.fixture
def later():
    """The real time, plus a difference that a test sets."""

    class Clock:
        ahead = timedelta(0)

        def __call__(self):
            return datetime.now(UTC) + self.ahead

    return Clock()


@pytest.fixture
def shipped_router(page, view, later):
    return Router(page, view, rules=SHIPPED, clock=later)


def test_the_urgency_of_a_confirmation_grows_with_its_age(page):
    waiting = page.add("pending_confirmation", "Confirm it", confidence=0.8)
    now = waiting.created_at
    urgencies = [SHIPPED.urgency(waiting, now + timedelta(hours=hours)) for hours in (0, 1, 24, 48)]
    assert urgencies == sorted(urgencies)
    assert [round(urgencies[at]) for at in (0, 2, 3)] == [56, 78, 89]


def test_an_unanswered_confirmation_becomes_urgent(page, shipped_router, later, consider):
    waiting = page.add("pending_confirmation", "Confirm it", confidence=0.8)
    consider(shipped_router)
    assert suggestions(page) == []
    later.ahead = timedelta(hours=12)
    consider(shipped_router)
    assert [each.evidence for each in suggestions(page)] == [[waiting.id]]


def test_a_due_reminder_is_urgent_and_more_so_when_overdue(bus, page, shipped_router, consider):
    soon = page.add("reminder", "Ask again", remind_at=datetime.now(UTC) + timedelta(milliseconds=20))
    page.add("reminder", "Not yet", remind_at=datetime.now(UTC) + timedelta(hours=1))
    assert SHIPPED.urgency(soon, soon.created_at + timedelta(days=3)) == 0
    eventually(lambda: bus.converse(sweep(bus.core)), "it falls due")
    consider(shipped_router)
    assert [each.evidence for each in suggestions(page)] == [[soon.id]]
    due = page.get(soon.id)
    assert round(SHIPPED.urgency(due, due.due_at)) == 80
    assert round(SHIPPED.urgency(due, due.due_at + timedelta(days=1))) == 90


@pytest.mark.parametrize("confidence", [1.0, 0.9])
def test_a_dependency_is_suggested_at_any_age(page, shipped_router, later, consider, confidence):
    blocked = page.add("dependency", "The schema has to be migrated", confidence=confidence)
    later.ahead = timedelta(days=5)
    consider(shipped_router)
    assert [each.evidence for each in suggestions(page)] == [[blocked.id]]


def test_an_observation_in_review_gets_no_suggestion(page, router, alert, consider):
    page.review(alert(times=5).id)
    consider(router)
    assert suggestions(page) == []


# -- modes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fraud(page):
    return page.add("risk_alert", "Fraud ring", tags=["security", "fraud"])


@pytest.fixture
def payment(page):
    def add(content="Transfer of 900 EUR"):
        return page.add("observation", content, tags=["financial"])

    return add


def questions(page, **filters):
    return page.list(type=CONFIRMATION, tags=[FOR_EXECUTOR], **filters)


def test_a_mode_ranks_up_and_asks_for_a_confirmation_first(page, shipped_router, consider, fraud, payment):
    transfer = payment()
    consider(shipped_router)
    (question,) = questions(page)
    assert question.evidence == [transfer.id, fraud.id]
    assert question.content == "Verify before acting: Transfer of 900 EUR [fraud: Fraud ring]"
    assert question.metadata == {"urgency": 70, "mode": "fraud"}
    assert [each.evidence for each in suggestions(page)] == [[fraud.id]]
    consider(shipped_router)
    assert len(questions(page)) == 1
    page.resolve(question.id, reason="they confirmed it by phone")
    consider(shipped_router)
    (act, _) = suggestions(page)
    assert act.evidence == [transfer.id, question.id, fraud.id]


def test_an_unconfirmed_observation_gets_no_suggestion(page, shipped_router, consider, fraud, payment):
    payment()
    consider(shipped_router)
    page.archive(questions(page)[0].id, reason="they do not know of it")
    consider(shipped_router)
    assert len(questions(page)) == len(suggestions(page)) == 1


def test_a_reopened_observation_is_verified_again(bus, page, shipped_router, consider, fraud, payment, running):
    transfer = payment()
    consider(shipped_router)
    page.resolve(transfer.id)
    table = read_tools(shipped("tools.yaml"), ("blocklist", "notify"))
    with running(Executor(bus, "main", table, {"notify": lambda one: f"notify:{one.id}"}).run):
        eventually(lambda: not questions(page, status="active"), "the question is handled")
    page.reopen(transfer.id)
    consider(shipped_router)
    (asked, before) = questions(page)
    assert (asked.status, before.status) == ("active", "archived")
    assert [each.evidence[0] for each in suggestions(page)] == [fraud.id]


def test_an_auto_archived_confirmation_still_counts(page, view, shipped_router, consider, fraud, payment, monkeypatch):
    transfer = payment()
    consider(shipped_router)
    page.resolve(questions(page)[0].id)
    stored = view.list
    auto_archived = {"status": "archived", "reason_code": "auto_archived"}  # as by an expirer after an hour
    monkeypatch.setattr(
        view, "list",
        lambda **given: [
            one.model_copy(update=auto_archived) if one.status == "resolved" else one for one in stored(**given)
        ],
    )  # fmt: skip
    consider(shipped_router)
    assert transfer.id in [each.evidence[0] for each in suggestions(page)]


def test_an_expired_question_is_asked_again(page, shipped_router, consider, fraud, payment):
    payment()
    consider(shipped_router)
    expire_soon(page, questions(page)[0].id)
    eventually(lambda: not questions(page, status="active"), "the question is over")
    consider(shipped_router)
    assert len(questions(page, status="active")) == 1


def test_a_mode_needs_its_alert(page, shipped_router, consider, fraud, payment):
    page.resolve(fraud.id)
    payment()
    consider(shipped_router)
    assert questions(page) == suggestions(page) == []


@pytest.mark.parametrize("change", [{"tags": ["security"]}, {"confidence": 0.4}])
def test_a_mode_is_over_when_its_alert_no_longer_matches(page, shipped_router, consider, fraud, payment, change):
    page.update(fraud.id, **change)
    payment()
    consider(shipped_router)
    assert questions(page) == []


def test_a_mode_can_hold_observations_back_until_it_ends(page, view, running, fraud):
    rules = parse_router_rules(
        "modes: [{name: freeze, while: {type: risk_alert, tags: [fraud]}, for: {type: dependency}, then: hold}]",
        "r.yaml",
    )
    blocked = page.add("dependency", "Pay the invoice", confidence=1.0)
    page.update(blocked.id, tags=["urgent"])
    router = Router(page, view, threshold=60, rules=rules)
    with running(router.run):
        eventually(lambda: suggestions(page), "the alert itself is suggested")
        assert [each.evidence for each in suggestions(page)] == [[fraud.id]]
        page.resolve(fraud.id)
        eventually(lambda: len(suggestions(page)) == 2, "the held back observation is suggested")
    assert suggestions(page)[0].evidence == [blocked.id]


def test_a_changed_alert_ends_a_mode_that_holds_back(page, view, running, fraud):
    rules = parse_router_rules(
        "modes: [{name: freeze, while: {type: risk_alert, tags: [fraud]}, for: {type: dependency}, then: hold}]",
        "r.yaml",
    )
    page.add("dependency", "Pay the invoice")
    with running(Router(page, view, threshold=60, rules=rules).run):
        eventually(lambda: suggestions(page), "the alert itself is suggested")
        page.update(fraud.id, tags=["security"])
        eventually(lambda: len(suggestions(page)) == 2, "the held back observation is suggested")


def test_executors_verify_first_and_the_trace_shows_the_alert(
    bus, page, shipped_router, consider, fraud, payment, running
):
    for number in range(3):
        page.add(SUGGESTION, f"Something else {number}", tags=[FOR_EXECUTOR], evidence=[fraud.id])
    transfer = payment()
    consider(shipped_router)
    table = read_tools(shipped("tools.yaml"), ("blocklist", "notify"))
    done = []

    def notify(observation):
        done.append(observation.id)
        return f"notify:{observation.id}"

    with running(Executor(bus, "main", table, {"notify": notify}).run):
        eventually(lambda: not page.list(tags=[FOR_EXECUTOR], status="active"), "all are handled")
    (question,) = questions(page)
    assert done[0] == question.id
    assert (question.status, question.metadata["outcome"]) == ("pending_review", "notified")
    assert page.get(transfer.id).links == []
    trace = page.trace(f"notify:{question.id}")
    assert set(trace.observations) == {question.id, transfer.id, fraud.id}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("pace:\n  reminder: slowly\n", 2, "fades.*stays.*grows"),
        ("modes:\n  - name: x\n    while: {}\n    for: {tags: [a]}\n", 3, "match everything"),
        ("modes:\n  - name: x\n    while: {tags: [a]}\n", 2, "'for' is missing"),
        ("modes:\n  - {name: x, while: {tags: [a]}, for: {tags: [b]}, raise: 200}\n", 2, "100"),
        ("modes:\n  - {name: x, while: {tags: [a]}, for: {tags: [b]}, raise: true}\n", 2, "not a number"),
        ("modes:\n  - {name: x, while: {tags: [a]}, for: {tags: [b]}}\n", 2, "changes nothing"),
        (
            "modes:\n  - {name: x, while: {tags: [a]}, for: {tags: [b]}, raise: 1}\n"
            "  - {name: x, while: {tags: [a]}, for: {tags: [c]}, raise: 1}\n",
            3,
            "name of two modes",
        ),
        ("modes:\n  - {name: x, while: {tags: [a]}, for: {tags: [b]}, then: stop}\n", 2, "verify.*hold"),
    ],
)
def test_an_error_in_the_rules_names_its_line(text, line, says):
    with pytest.raises(RulesError, match=says) as caught:
        parse_router_rules(text, "router.yaml")
    assert caught.value.line == line
