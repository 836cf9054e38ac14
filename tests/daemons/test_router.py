"""The router suggests one action for each urgent observation."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from daemons.router import EXECUTOR, SUGGESTION, Router
from scratchbus import Change
from scratchbus.scheduling.expiry import sweep
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
def look(bus, view):
    """Have routers look around, once their view has seen all there is."""

    def look_around(*routers):
        view.wait_for(bus.position())
        for router in routers:
            router.look_around()

    return look_around


def suggestions(page, **filters):
    return page.list(type=SUGGESTION, **filters)


def test_an_urgent_alert_gets_a_suggestion_that_rests_on_it(page, router, alert, look):
    urgent = alert(times=5)
    look(router)
    (suggestion,) = suggestions(page)
    assert suggestion.evidence == [urgent.id]
    assert suggestion.owner == EXECUTOR
    assert suggestion.metadata == {"urgency": 73}
    assert suggestion.content == "Act on: Failed passwords from 192.0.2.1"


def test_a_suggestion_says_which_event_it_answers(page, router, alert, look):
    alert()
    repeated = alert(times=5)
    look(router)
    (suggestion,) = suggestions(page)
    (added,) = page.history(suggestion.id)
    assert added.cause == str(page.history(repeated.id)[-1].position)


def test_what_is_not_urgent_gets_none(page, router, alert, look):
    alert(times=1)
    page.add("contextual_insight", "They are going to the bistro")
    look(router)
    assert suggestions(page) == []


def test_looking_again_suggests_nothing_again(bus, page, view, router, alert, look):
    alert(times=5)
    look(router)
    end = bus.position()
    look(router, Router(page, view))
    assert bus.position() == end


@pytest.mark.parametrize("is_answered", [False, True], ids=["open", "answered"])
@pytest.mark.parametrize("is_repeated", [False, True], ids=["same", "repeated"])
def test_two_routers_make_one_suggestion(page, view, router, alert, look, is_repeated, is_answered, monkeypatch):
    urgent = alert(times=5)
    look(router)
    if is_answered:
        page.resolve(suggestions(page)[0].id)
    if is_repeated:
        alert(times=5)
    monkeypatch.setattr(view, "list", lambda **_: [])  # has not seen what the first one has just written
    look(Router(page, view))
    (suggestion,) = suggestions(page)
    assert suggestion.evidence == [urgent.id]
    assert suggestion.occurrences == 1


def test_what_was_acted_on_gets_none(page, router, alert, look):
    page.link(alert(times=5).id, action="goal-17")
    look(router)
    assert suggestions(page) == []


def test_one_that_was_declined_is_not_made_again(page, router, alert, look):
    urgent = alert(times=5)
    look(router)
    page.resolve(suggestions(page)[0].id, reason="leave it")
    page.update(urgent.id, confidence=1.0)
    look(router)
    assert len(suggestions(page)) == 1


def test_one_that_expired_unanswered_is_made_again(page, view, router, alert, look):
    urgent = alert(times=5)
    look(router)
    (first,) = suggestions(page)
    page.update(first.id, expires_at=datetime.now(UTC) + timedelta(milliseconds=20))
    eventually(lambda: page.get(first.id).status == "archived", "the suggestion is over")
    look(router)
    (second,) = suggestions(page, status="active")
    assert second.evidence == [urgent.id]
    look(Router(page, view))
    assert len(suggestions(page)) == 2


def test_one_that_expires_unanswered_is_made_again_while_the_router_runs(bus, page, router, alert, running):
    alert(times=5)
    with running(router.run):
        eventually(lambda: suggestions(page), "it is suggested")
        (first,) = suggestions(page)
        page.update(first.id, expires_at=datetime.now(UTC) + timedelta(milliseconds=20))
        eventually(lambda: page.get(first.id).status == "archived", "the suggestion is over")
        bus.converse(sweep(bus.core))
        eventually(lambda: suggestions(page, status="active"), "it is suggested anew")


def test_what_happens_while_no_router_runs_is_made_up_for(bus, page, alert, running):
    def run(stop):
        with bus.view("main") as view:
            Router(page, view).run(stop)

    with running(run):
        alert("192.0.2.1", times=5)
        eventually(lambda: suggestions(page), "it is suggested")
    missed = alert("192.0.2.2", times=5)
    with running(run):
        eventually(lambda: len(suggestions(page)) == 2, "what came meanwhile is suggested")
    assert suggestions(page)[0].evidence == [missed.id]


def test_a_router_that_is_told_that_changes_are_missing_looks_around(page, view, router, alert, monkeypatch):
    def changes(_):
        view.wait_for(alert(times=5))
        yield Change(None, None, None, "the log was trimmed")

    monkeypatch.setattr(view, "changes", changes)
    router.run(threading.Event())
    assert len(suggestions(page)) == 1


def test_an_alert_becomes_urgent_while_the_router_runs(page, router, alert, running):
    waiting = alert("192.0.2.9", times=5)
    with running(router.run):
        eventually(lambda: [each.evidence for each in suggestions(page)] == [[waiting.id]], "what was there before")
        alert("192.0.2.1")
        alert("192.0.2.1")
        eventually(lambda: page.active(), "the page is read")
        assert len(suggestions(page)) == 1
        urgent = alert("192.0.2.1")
        eventually(lambda: len(suggestions(page)) == 2, "the third attempt is enough")
        assert suggestions(page)[0].evidence == [urgent.id]


def test_a_long_alert_is_shortened_in_its_suggestion(page, router, look):
    page.add("risk_alert", "very long " * 5_000)
    look(router)
    assert len(suggestions(page)[0].content) < 320
