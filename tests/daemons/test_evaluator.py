"""The evaluator resolves what was acted on, once it is quiet."""

from datetime import UTC, datetime, timedelta

import pytest

from daemons.evaluator import Evaluator
from tests.waiting import eventually

QUIET_FOR = timedelta(minutes=10)


@pytest.fixture
def alert(page):
    def add(is_acted_on=True):
        added = page.add("risk_alert", "Failed passwords", dedupe_key="192.0.2.1")
        return page.link(added.id, action="block:192.0.2.1") if is_acted_on else added

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
    return Evaluator(page, view, QUIET_FOR, clock)


@pytest.fixture
def look(bus, view):
    """Have evaluators look around, once their view has seen all there is."""

    def look_around(*evaluators):
        view.wait_for(bus.position())
        for evaluator in evaluators:
            evaluator.look_around()

    return look_around


def test_what_was_acted_on_and_is_quiet_is_resolved(page, alert, clock, evaluator, running):
    quiet = alert()
    with running(evaluator.run):
        clock.ahead = QUIET_FOR
        eventually(lambda: page.get(quiet.id).status == "resolved", "it is resolved")
    assert page.get(quiet.id).reason == "acted on (block:192.0.2.1) and quiet since"
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
    other = Evaluator(page, view, QUIET_FOR, clock)
    clock.ahead = QUIET_FOR
    look(evaluator, other)
    assert [event.kind for event in page.history(quiet.id)] == ["added", "linked", "status_changed"]


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
