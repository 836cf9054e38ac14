"""The router suggests one action for each urgent observation."""

from datetime import UTC, datetime, timedelta

import pytest

from scratchbus.roles.router import EXECUTOR, SUGGESTION, Router
from tests.roles.waiting import until


@pytest.fixture
def alert(page):
    def add(address="192.0.2.1", times=1):
        content = f"Failed passwords from {address}"
        return page.add("risk_alert", content, confidence=0.6, dedupe_key=address, times=times, tags=["ssh"])

    return add


@pytest.fixture
def router(bus):
    return Router(bus, "main")


def suggestions(page, **filters):
    return page.list(type=SUGGESTION, **filters)


def test_an_urgent_alert_gets_a_suggestion_that_rests_on_it(page, router, alert):
    urgent = alert(times=5)
    router.look_around()
    (suggestion,) = suggestions(page)
    assert suggestion.evidence == [urgent.id]
    assert suggestion.owner == EXECUTOR
    assert suggestion.metadata == {"urgency": 73}
    assert suggestion.content == "Act on: Failed passwords from 192.0.2.1"


def test_a_suggestion_says_which_event_it_answers(page, router, alert):
    alert()
    repeated = alert(times=5)
    router.look_around()
    (suggestion,) = suggestions(page)
    (added,) = page.history(suggestion.id)
    assert added.cause == str(page.history(repeated.id)[-1].position)


def test_what_is_not_urgent_gets_none(page, router, alert):
    alert(times=1)
    page.add("contextual_insight", "They are going to the bistro")
    router.look_around()
    assert suggestions(page) == []


def test_looking_again_suggests_nothing_again(bus, page, router, alert):
    alert(times=5)
    router.look_around()
    end = bus.position()
    router.look_around()
    Router(bus, "main").look_around()
    assert bus.position() == end


def test_two_routers_make_one_suggestion(bus, page, router, alert, monkeypatch):
    urgent = alert(times=5)
    other = Router(bus, "main")
    monkeypatch.setattr(other, "_has_suggestion", lambda _: False)  # it looked before the first one had written
    router.look_around()
    other.look_around()
    (suggestion,) = suggestions(page)
    assert suggestion.evidence == [urgent.id]
    assert suggestion.occurrences == 1


def test_what_was_acted_on_gets_none(page, router, alert):
    page.link(alert(times=5).id, action="goal-17")
    router.look_around()
    assert suggestions(page) == []


def test_one_that_was_declined_is_not_made_again(page, router, alert):
    urgent = alert(times=5)
    router.look_around()
    page.resolve(suggestions(page)[0].id, reason="leave it")
    page.update(urgent.id, confidence=1.0)
    router.look_around()
    assert len(suggestions(page)) == 1


def test_one_that_expired_unanswered_is_made_again(page, router, alert):
    urgent = alert(times=5)
    router.look_around()
    (first,) = suggestions(page)
    page.update(first.id, expires_at=datetime.now(UTC) + timedelta(milliseconds=20))
    until(lambda: page.get(first.id).status == "archived", "the suggestion is over")
    page.update(urgent.id, confidence=0.9)
    router.look_around()
    assert len(suggestions(page, status="active")) == 1


def test_an_alert_becomes_urgent_while_the_router_runs(page, router, alert, running):
    waiting = alert("192.0.2.9", times=5)
    with running(router.run):
        until(lambda: [each.evidence for each in suggestions(page)] == [[waiting.id]], "what was there before")
        alert("192.0.2.1")
        alert("192.0.2.1")
        until(lambda: page.active(), "the page is read")
        assert len(suggestions(page)) == 1
        urgent = alert("192.0.2.1")
        until(lambda: len(suggestions(page)) == 2, "the third attempt is enough")
        assert suggestions(page)[0].evidence == [urgent.id]


def test_a_long_alert_is_shortened_in_its_suggestion(page, router):
    page.add("risk_alert", "very long " * 5_000)
    router.look_around()
    assert len(suggestions(page)[0].content) < 320
