"""Scheduled observations become active at their time, swept or not; a recurrence adds one per slot."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from scratchbus import Bus, NewObservation, Page
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, InvalidTTL, NotReady
from scratchbus.readmodel.scope import Core
from scratchbus.scheduling import expiry
from scratchbus.scheduling.expiry import sweep
from scratchbus.scheduling.recurring import fill_slot
from tests.clock import Clock
from tests.engines import ALL, ONE, Connect
from tests.faults.interposing import interposed
from tests.inspection import all_events, log_length, project

pytestmark = pytest.mark.engines(*ALL)


def contents(observations):
    return [each.content for each in observations]


def swept(bus):
    return bus.converse(sweep(bus.core))


def later(clock, seconds):
    return clock.now + timedelta(seconds=seconds)


def test_a_scheduled_observation_is_active_from_its_time_swept_or_not(bus, page, clock):
    one = page.add("risk_alert", "one", not_before=later(clock, 60), ttl="1m")
    assert (one.not_before, one.expires_at) == (later(clock, 60), later(clock, 120))
    assert page.active() == page.ready() == []
    assert page.claim_next() is None
    assert swept(bus) == 0
    project(bus)
    clock.advance(60)
    assert contents(page.active()) == contents(page.ready()) == ["one"]
    assert swept(bus) == 1
    assert (swept(bus), page.get(one.id).due_at) == (0, clock.now)
    assert contents(page.active(1)) == ["one"]
    assert page.claim_next().id == one.id


def test_a_scheduled_observation_cannot_be_claimed_early(bus, page, clock):
    one = page.add("observation", "one", not_before=later(clock, 60))
    length = log_length(bus)
    with pytest.raises(NotReady, match=f"{one.id} is not ready: it is scheduled for {clock.now.year}"):
        page.claim(one.id)
    assert log_length(bus) == length
    clock.advance(60)
    assert page.claim(one.id).fence == 1


def test_a_sweep_appends_one_due_event(bus, page, clock):
    one = page.add("observation", "one", not_before=later(clock, 60))
    clock.advance(61)
    assert swept(bus) == 1
    assert [event.kind for event in page.history(one.id)] == ["added", "due"]
    assert bus.verify().findings == []


def test_a_view_shows_a_scheduled_observation_from_its_time(bus, page, clock):
    page.add("risk_alert", "one", not_before=later(clock, 60))
    now = page.add("observation", "now")
    with bus.view() as view:
        assert contents(view.active()) == ["now"]
        clock.advance(60)
        view.wait_for(page.update(now.id, content="still"))
        assert contents(view.active()) == contents(page.active()) == ["one", "still"]


def test_as_of_hides_a_scheduled_observation_before_its_time(page, clock):
    start = later(clock, 60)
    page.add("observation", "one", not_before=start)
    clock.advance(120)
    assert page.as_of(start - timedelta(seconds=1)).active() == []
    assert contents(page.as_of(start).active()) == ["one"]


@pytest.mark.engines(*ONE)
def test_a_worker_waits_for_a_scheduled_observation(bus, page):
    page.add("observation", "soon", not_before=datetime.now(UTC) + timedelta(seconds=0.3))
    with bus.work("all") as jobs:
        assert next(iter(jobs)).observation.content == "soon"
        assert all(event.kind in ("added", "claimed") for event in all_events(bus))


def test_a_scheduled_observation_is_not_displaced(connect, clock):
    page = connect("tester", max_observations=2).page("small")
    kept = page.add("observation", "scheduled", not_before=later(clock, 60))
    first = page.add("observation", "first")
    second = page.add("observation", "second")
    assert contents(page.displaced(second)) == ["first"]
    assert (page.get(kept.id).status, page.get(first.id).status) == ("active", "archived")


@pytest.mark.engines("memory")
def test_invalid_schedules_are_refused(bus, page, clock):
    length, soon = log_length(bus), later(clock, 60)
    wrong = (
        ({"not_before": "someday"}, "not_before"),
        (
            {"not_before": datetime.max.replace(tzinfo=UTC)},
            "not_before: .* is too late; give a time up to the year 9000",
        ),
        ({"not_before": "9999-12-31T23:59:59Z", "every": "0 3 29 2 *"}, "not_before: .* is too late"),
        ({"not_before": soon, "remind_at": soon}, "remind_at: cannot be given together with not_before"),
        (
            {"not_before": soon, "remind_on": {"type": "observation"}},
            "remind_on: cannot be given together with not_before",
        ),
        ({"every": "often"}, "'often' is neither an interval of at least 1s"),
        ({"every": "10ms"}, "every"),
        ({"every": "never"}, "every"),
        ({"every": "61 * * * *"}, "every"),
        ({"every": "0 0 30 2 *"}, "every"),
        ({"every": 60}, "every"),
        (
            {"every": "1h", "ttl": "1h"},
            "ttl: cannot be given together with every: each gets the ttl of its type",
        ),
        ({"every": "1h", "remind_at": soon}, "remind_at"),
    )
    for given, says in wrong:
        with pytest.raises(InvalidField, match=says):
            page.add("observation", "x", **given)
    with pytest.raises(InvalidTTL, match="is not after"):
        page.add("observation", "x", not_before=soon, expires_at=later(clock, 30))
    assert log_length(bus) == length


def hourly(page, clock, content="look", **more):
    return page.add("observation", content, every="1h", not_before=later(clock, 3600), **more)


# -- recurrence -----------------------------------------------------------------------------------------------------


def test_a_recurrence_adds_an_observation_at_each_slot(bus, page, clock):
    kept = hourly(page, clock, tags=["a"], context={"n": 1}, source="planner")
    start = clock.now
    assert (kept.every, kept.expires_at) == ("1h", None)
    assert page.active() == []
    seen = []
    for hour in (1, 2, 3):
        clock.advance(3599)
        assert (swept(bus), page.active()) == (0, [])
        clock.advance(1)
        assert page.active() == []  # not before a sweep adds it
        assert (swept(bus), swept(bus)) == (2, 0)
        (one,) = page.active()
        assert (one.content, one.source, one.tags, one.context) == ("look", "planner", ["a"], {"n": 1})
        assert page.get(kept.id).not_before == start + timedelta(hours=hour + 1)
        seen.append(page.archive(one.id).id)
    assert len(set(seen)) == 3
    assert kept.id not in seen
    assert bus.verify().findings == []


def test_an_open_occurrence_is_repeated_at_the_next_slot(bus, page, clock):
    hourly(page, clock)
    for _ in range(3):
        clock.advance(3600)
        swept(bus)
    (one,) = page.active()
    assert one.occurrences == 3


def test_slots_missed_without_an_expirer_count_as_one(bus, page, clock):
    kept = hourly(page, clock)
    start = clock.now
    clock.advance(5.5 * 3600)
    swept(bus)
    assert [each.occurrences for each in page.active()] == [1]
    assert page.get(kept.id).not_before == start + timedelta(hours=6)


@pytest.mark.engines("memory")
def test_an_interval_may_have_five_words(page):
    kept = page.add("observation", "look", every="1 hour and 30 minutes")
    assert timedelta(minutes=89) < kept.not_before - kept.created_at < timedelta(minutes=91)


def test_cron_times_are_in_utc(bus, page, clock):
    kept = page.add("observation", "backup", every="0 3 * * *")
    first = kept.not_before
    assert (first.hour, first.minute, first > clock.now) == (3, 0, True)
    assert first - clock.now <= timedelta(days=1)
    clock.advance((first - clock.now).total_seconds())
    swept(bus)
    assert contents(page.active()) == ["backup"]
    assert page.get(kept.id).not_before == first + timedelta(days=1)


def test_a_recurrence_starts_and_ends_at_its_given_times(bus, page, clock):
    start = later(clock, 600)
    kept = page.add("observation", "look", every="1h", not_before=start, expires_at=start + timedelta(minutes=90))
    assert kept.not_before == start
    clock.advance(600)
    assert swept(bus) == 2
    page.resolve(page.active()[0].id)
    clock.advance(3600)
    swept(bus)
    page.resolve(page.active()[0].id)
    clock.advance(3600)
    swept(bus)
    assert (page.active(), page.get(kept.id).reason_code) == ([], "expired")


def test_archiving_a_recurrence_ends_it(bus, page, clock):
    kept = hourly(page, clock)
    page.archive(kept.id)
    clock.advance(7200)
    assert (swept(bus), page.active()) == (0, [])


@pytest.mark.parametrize("steps", [["resolve"], ["review", "resolve"]], ids="-".join)
@pytest.mark.parametrize(
    "reopen",
    [
        lambda page, id: page.reopen(id, event_id="once"),
        lambda page, id: page.update(id, status="active", event_id="once"),
    ],
    ids=["reopen", "update"],
)
def test_a_reopened_recurrence_continues_at_its_next_slot(bus, page, clock, steps, reopen):
    kept = hourly(page, clock)
    for step in steps:
        getattr(page, step)(kept.id)
    clock.advance(3000)
    assert (swept(bus), page.active()) == (0, [])
    reopened = reopen(page, kept.id)
    assert timedelta() < reopened.not_before - datetime.now(UTC) <= timedelta(hours=1)
    assert reopen(page, kept.id) == reopened
    clock.advance((reopened.not_before - clock.now).total_seconds())
    assert (swept(bus), swept(bus)) == (2, 0)
    assert contents(page.active()) == ["look"]
    assert bus.verify().findings == []


def test_a_recurrence_keeps_its_slot_in_review(bus, page, clock):
    kept = hourly(page, clock)
    assert page.review(kept.id).not_before == kept.not_before
    clock.advance(3600)
    assert (swept(bus), swept(bus)) == (2, 0)
    assert page.reopen(kept.id).not_before == kept.not_before + timedelta(hours=1)
    clock.advance(3600)
    assert (swept(bus), swept(bus)) == (2, 0)
    assert [each.occurrences for each in page.active()] == [2]


def test_retries_of_a_reopened_recurrence_return_the_first_results(bus, page, clock):
    kept = hourly(page, clock)
    page.resolve(kept.id)
    reviewed = page.update(kept.id, status="pending_review", event_id="review")
    reopened = page.reopen(kept.id, event_id="reopen")
    page.resolve(kept.id)
    length = log_length(bus)
    assert page.update(kept.id, status="pending_review", event_id="review") == reviewed
    assert page.reopen(kept.id, event_id="reopen") == reopened
    assert log_length(bus) == length


def test_a_sweep_during_a_review_fills_a_slot_once(bus, page, clock):
    kept = hourly(page, clock)
    clock.advance(3600)
    calls: list[str] = []

    def around(call, send):  # the sweep comes between the read of the review and its write
        if call.is_write and not calls:
            calls.append("swept")
            assert swept(bus) == 2
        return send()

    with interposed(bus, around):
        reviewed = page.review(kept.id)
    assert (reviewed.not_before, calls) == (kept.not_before + timedelta(hours=1), ["swept"])
    assert (swept(bus), [each.occurrences for each in page.active()]) == (0, [1])


def test_a_recurrence_itself_cannot_be_claimed(bus, page, clock):
    kept = hourly(page, clock)
    clock.advance(7200)  # its slot has passed, and nobody has swept
    assert page.claim_next() is None
    with pytest.raises(NotReady, match="it recurs, and only what it adds can be claimed"):
        page.claim(kept.id)
    with pytest.raises(InvalidField, match="recurs and is never active"):
        page.update(kept.id, blocked_by=[])
    page.update(kept.id, tags=["new"], content="look closer")
    swept(bus)
    assert page.claim_next(tags="new").observation.content == "look closer"


def test_a_dedupe_key_prevents_a_second_recurrence(page):
    ids = {page.add("observation", "look", every="1h", dedupe_key="hourly").id for _ in "12"}
    assert len(ids) == 1


@pytest.mark.engines(*ONE)
def test_several_expirers_fill_each_slot_once(connect, page, clock):
    kept = [hourly(page, clock, f"{n}").id for n in range(10)]
    buses = [connect(f"expirer-{n}") for n in range(4)]
    for _ in range(3):
        clock.advance(3600)
        barrier = threading.Barrier(len(buses))

        def work(bus, barrier=barrier):
            barrier.wait()
            swept(bus)

        threads = [threading.Thread(target=work, args=(bus,)) for bus in buses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(each.occurrences for each in page.active()) == [3] * 10
    assert all([event.kind for event in page.history(id)] == ["added", "due", "due", "due"] for id in kept)


@pytest.mark.engines(*ONE)
def test_a_recurrence_erased_during_a_sweep_does_not_stop_it(
    bus: Bus, page: Page, connect: Connect, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = hourly(page, clock)
    story = page.add("observation", "x", ttl="1m")
    clock.advance(3600)
    other = connect("other").page("main")

    def erase_and_fill(core: Core, *given: Any) -> Step[int]:
        other.erase(kept.id, reason="secret")
        return fill_slot(core, *given)

    monkeypatch.setattr(expiry, "fill_slot", erase_and_fill)
    assert swept(bus) == 1
    assert page.get(story.id).version == 2


def test_a_full_page_fills_the_slot_once_there_is_room(connect, clock):
    bus = connect("tester", max_observations=2)
    page = bus.page("small")
    kept = hourly(page, clock)
    alert = page.add("risk_alert", "more urgent")
    clock.advance(3600)
    assert swept(bus) == 0
    page.resolve(alert.id)
    assert swept(bus) == 2
    assert contents(page.active()) == ["look"]
    assert page.get(kept.id).status == "active"


@pytest.mark.engines(*ONE)
def test_a_slot_that_waits_for_room_is_logged_once_a_minute(connect, clock, monkeypatch):
    bus = connect("tester", max_observations=2, sweep_interval="1s")
    hourly(bus.page("small"), clock)
    bus.page("small").add("risk_alert", "more urgent")
    logger = Mock()
    monkeypatch.setattr("scratchbus.scheduling.recurring.logger", logger)
    clock.advance(3600)
    for _ in range(5):
        assert swept(bus) == 0
        clock.advance(1)
    assert logger.warning.call_count == 1
    clock.advance(55)
    assert swept(bus) == 0
    assert logger.warning.call_count == 2


def test_a_batch_can_schedule_observations(page, clock):
    items = [NewObservation(type="observation", content=c, not_before=later(clock, 60)) for c in "ab"]
    page.add_many(items)
    clock.advance(60)
    assert contents(page.active()) == ["b", "a"]
