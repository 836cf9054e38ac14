"""Scheduled and recurring observations and reminders can be moved to another time."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from scratchbus import Observation
from scratchbus.errors import (
    Claimed,
    EventIdReused,
    InvalidField,
    InvalidTransition,
    InvalidTTL,
    NotReady,
    VersionConflict,
)
from scratchbus.scheduling.expiry import sweep
from tests.engines import ALL, ONE
from tests.faults.interposing import interposed
from tests.inspection import log_length, project
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ALL)


def contents(observations):
    return [each.content for each in observations]


def swept(bus):
    return bus.converse(sweep(bus.core))


def later(clock, seconds):
    return clock.now + timedelta(seconds=seconds)


@pytest.fixture
def one(page, clock):
    return page.add("observation", "one", not_before=later(clock, 600), ttl="1h")


def test_a_scheduled_observation_can_be_postponed(bus, page, clock, one):
    moved = page.update(one.id, not_before=later(clock, 1200))
    assert (moved.not_before, moved.expires_at) == (later(clock, 1200), one.expires_at)
    project(bus)
    clock.advance(601)
    assert (page.active(), page.claim_next(), swept(bus)) == ([], None, 0)
    with pytest.raises(NotReady, match="it is scheduled for"):
        page.claim(one.id)
    clock.advance(599)
    assert contents(page.active()) == contents(page.ready()) == ["one"]
    assert (swept(bus), swept(bus)) == (1, 0)
    assert page.claim_next().id == one.id
    assert [each.kind for each in page.history(one.id)] == ["added", "updated", "due", "claimed"]
    assert bus.verify().findings == []


def test_a_scheduled_observation_can_be_moved_earlier_or_unscheduled(bus, page, clock, one):
    project(bus)
    page.update(one.id, not_before=later(clock, 60))
    clock.advance(60)
    assert contents(page.active()) == ["one"]
    assert swept(bus) == 1
    two = page.add("observation", "two", not_before=later(clock, 60))
    freed = page.update(two.id, not_before=None)
    assert (freed.not_before, freed.remind_at) == (None, None)
    assert contents(page.ready()) == ["two", "one"]
    clock.advance(61)
    assert swept(bus) == 0
    assert bus.verify().findings == []


def test_an_active_observation_can_be_postponed(bus, page, clock):
    kept = page.add("observation", "x", tags=["a"])
    page.update(kept.id, not_before=later(clock, 60), tags=["b"])
    assert (page.active(), page.list(tags=["b"])[0].id) == ([], kept.id)
    clock.advance(60)
    assert contents(page.active()) == ["x"]
    page.update(kept.id, not_before=later(clock, 60))  # again, and nobody has swept
    assert page.active() == []
    clock.advance(60)
    assert (swept(bus), contents(page.active())) == (1, ["x"])
    assert bus.verify().findings == []


def test_an_unscheduled_observation_can_be_displaced(connect, clock):
    page = connect("tester", max_observations=1).page("small")
    kept = page.add("observation", "scheduled", not_before=later(clock, 60))
    page.update(kept.id, not_before=None)
    assert contents(page.displaced(page.add("observation", "newer"))) == ["scheduled"]


def test_a_postponed_observation_expires_after_its_new_start(page, clock, one):
    kept = page.add("observation", "x", ttl="10m")
    start = later(clock, 1200)
    assert page.update(kept.id, not_before=start).expires_at == start + timedelta(days=7)
    assert page.update(one.id, not_before=later(clock, 1800)).expires_at == one.expires_at
    ends = later(clock, 1300)
    assert page.update(kept.id, not_before=start, expires_at=ends).expires_at == ends
    with pytest.raises(InvalidTTL, match="is not after"):
        page.update(kept.id, not_before=start, expires_at=start)
    lasting = page.add("observation", "y", ttl="never")
    assert page.update(lasting.id, not_before=start).expires_at is None
    exact = page.add("observation", "z", expires_at=start)
    assert page.update(exact.id, not_before=start).expires_at == start + timedelta(days=7)
    daily = page.add("action_suggestion", "call", ttl="10m")
    assert page.update(daily.id, not_before=start).expires_at == start + timedelta(days=1)


def test_a_view_follows_a_new_time(bus, page, clock, one):
    now = page.add("observation", "now")
    with bus.view() as view:
        view.wait_for(page.update(one.id, not_before=later(clock, 30)))
        assert contents(view.active()) == ["now"]
        clock.advance(30)
        view.wait_for(page.update(now.id, content="still"))
        assert contents(view.active()) == contents(page.active()) == ["still", "one"]


def test_as_of_has_the_time_that_was_set_then(bus, page, clock, one):
    before = bus.position()
    page.update(one.id, not_before=later(clock, 30))
    assert page.as_of(before).get(one.id).not_before == one.not_before
    assert page.as_of(bus.position()).get(one.id).not_before == later(clock, 30)


def test_a_holder_can_postpone_and_release_a_claimed_observation(bus, page, clock):
    kept = page.add("observation", "x")
    claim = page.claim(kept.id, by="worker", ttl="1m")
    page.update(kept.id, not_before=later(clock, 600), fence=claim.fence)
    page.release(kept.id, by="worker", fence=claim.fence)
    assert page.get(kept.id).not_before == later(clock, 600)
    assert (page.active(), page.claim_next()) == ([], None)
    clock.advance(600)
    assert page.claim_next().id == kept.id
    assert bus.verify().findings == []


def test_a_lapsed_claim_leaves_the_new_time(bus, page, clock):
    kept = page.add("observation", "x")
    claim = page.claim(kept.id, by="worker", ttl="1m")
    page.update(kept.id, not_before=later(clock, 600), fence=claim.fence)
    clock.advance(61)
    swept(bus)
    assert (page.get(kept.id).claim, page.claim_next()) == (None, None)
    clock.advance(539)
    assert page.claim_next().id == kept.id


def test_only_the_holder_can_move_a_claimed_observation(connect, page, clock):
    kept = page.add("observation", "x")
    page.claim(kept.id, by="worker", ttl="1m")
    with pytest.raises(Claimed):
        connect("other").page().update(kept.id, not_before=later(clock, 600))


def test_an_update_ends_the_delay_after_a_failed_attempt(page, clock):
    kept = page.add("observation", "x")
    with page._bus.work("w", retry_delay="1h") as jobs:
        next(jobs).fail("not yet")
    assert page.ready() == []
    assert page.update(kept.id, not_before=None).not_before is None
    assert contents(page.ready()) == ["x"]


@pytest.mark.engines(*ONE)
def test_a_worker_wakes_for_an_observation_moved_earlier(connect, bus, page):
    kept = page.add("observation", "soon", not_before=datetime.now(UTC) + timedelta(hours=1))
    found: list[str] = []

    def work():
        with connect("worker").work("all") as jobs:
            found.append(next(iter(jobs)).id)

    thread = threading.Thread(target=work)
    thread.start()
    page.update(kept.id, not_before=None)
    eventually(lambda: found == [kept.id], "the worker has it")
    thread.join()


def test_a_concurrent_change_of_expires_at_counts(bus, connect, page, clock, one):
    other = connect("other").page()
    calls: list[Observation] = []

    def around(call, send):
        if call.is_write and not calls:
            calls.append(other.update(one.id, expires_at=later(clock, 700)))
        return send()

    with interposed(bus, around):
        moved = page.update(one.id, not_before=later(clock, 1200))
    assert (len(calls), moved.expires_at) == (1, later(clock, 1200) + timedelta(days=7))


# -- recurrence -----------------------------------------------------------------------------------------------------


def test_the_next_slot_of_a_recurrence_can_be_moved(bus, page, clock):
    kept = page.add("observation", "look", every="1h")
    start = later(clock, 60)
    assert page.update(kept.id, not_before=start).not_before == start
    clock.advance(60)
    assert swept(bus) == 2
    assert contents(page.active()) == ["look"]
    assert page.get(kept.id).not_before == start + timedelta(hours=1)
    assert bus.verify().findings == []


def test_the_interval_of_a_recurrence_can_be_changed(bus, page, clock):
    kept = page.add("observation", "look", every="1d")
    begun = datetime.now(UTC)
    moved = page.update(kept.id, every="10m", content="look closer")
    assert begun <= moved.not_before - timedelta(minutes=10) + timedelta(milliseconds=1)
    assert moved.not_before - timedelta(minutes=10) <= datetime.now(UTC)
    moved = page.update(kept.id, every="10m", not_before=later(clock, 600))
    assert (moved.every, moved.not_before) == ("10m", later(clock, 600))
    clock.advance(600)
    assert swept(bus) == 2
    assert contents(page.active()) == ["look closer"]
    assert page.get(kept.id).not_before == later(clock, 600)
    cron = page.update(kept.id, every="0 3 * * *")
    assert (cron.not_before.hour, cron.not_before > begun) == (3, True)
    begin = later(clock, 3 * 86_400)
    assert timedelta() <= page.update(kept.id, not_before=begin).not_before - begin < timedelta(days=1)
    assert bus.verify().findings == []


def test_a_concurrent_update_and_sweep_fill_each_slot_once(bus, page, clock):
    kept = page.add("observation", "look", every="1h", not_before=later(clock, 3600))
    clock.advance(3600)
    calls: list[str] = []

    def around(call, send):  # the sweep comes between the read of the update and its write
        if call.is_write and not calls:
            calls.append("swept")
            assert swept(bus) == 2
        return send()

    with interposed(bus, around):
        moved = page.update(kept.id, every="2h", not_before=later(clock, 7200))
    assert (moved.every, moved.not_before, calls) == ("2h", later(clock, 7200), ["swept"])
    clock.advance(7200)
    assert (swept(bus), swept(bus)) == (2, 0)
    assert [each.occurrences for each in page.active()] == [2]


# -- reminders ------------------------------------------------------------------------------------------------------


def test_a_reminder_stays_when_an_observation_that_is_not_scheduled_is_unscheduled(bus, page, clock):
    kept = page.add("reminder", "call", remind_at=later(clock, 60))
    assert page.update(kept.id, not_before=None).remind_at == kept.remind_at
    clock.advance(60)
    assert (swept(bus), page.get(kept.id).due_at) == (1, clock.now)
    assert bus.verify().findings == []


def test_a_reminder_can_be_moved_or_dropped(bus, page, clock):
    kept = page.add("reminder", "call", remind_at=later(clock, 60))
    page.update(kept.id, remind_at=later(clock, 120))
    clock.advance(60)
    assert (swept(bus), contents(page.active())) == (0, ["call"])
    clock.advance(60)
    assert (swept(bus), page.get(kept.id).due_at) == (1, clock.now)
    page.update(kept.id, remind_at=later(clock, 60))
    page.update(kept.id, remind_at=None)
    clock.advance(60)
    assert swept(bus) == 0
    assert bus.verify().findings == []


def test_postponing_a_reminder_moves_it(bus, page, clock):
    kept = page.add("reminder", "call", remind_at=later(clock, 60))
    page.update(kept.id, not_before=later(clock, 120))
    clock.advance(60)
    assert (swept(bus), page.active()) == (0, [])
    clock.advance(60)
    assert (swept(bus), contents(page.active())) == (1, ["call"])


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.engines("memory")
def test_invalid_moves_are_refused(bus, page, clock, one):
    soon = later(clock, 60)
    hourly = page.add("observation", "hourly", every="1h", expires_at=later(clock, 7200))
    waiting = page.add("reminder", "merge", remind_on={"type": "observation"})
    plain = page.add("observation", "plain")
    length = log_length(bus)
    for id, changes, says in (
        (one.id, {"not_before": "someday"}, "not_before"),
        (plain.id, {"not_before": "9999-12-31T23:59:59Z"}, "not_before: .* is too late"),
        (hourly.id, {"not_before": "9999-12-31T23:59:59Z"}, "not_before: .* is too late"),
        (one.id, {"not_before": soon, "status": "pending_review"}, "status: cannot be given together with not_before"),
        (hourly.id, {"every": "2h", "status": "archived"}, "status: cannot be given together with every"),
        (plain.id, {"remind_at": soon, "status": "archived"}, "status: cannot be given together with remind_at"),
        (one.id, {"remind_at": soon}, "is scheduled; give not_before"),
        (one.id, {"not_before": soon, "remind_at": soon}, "remind_at: cannot be given together with not_before"),
        (hourly.id, {"every": "2h", "remind_at": soon}, "remind_at: cannot be given together with every"),
        (plain.id, {"every": "1h"}, f"every: {plain.id} does not recur; add a new one that does"),
        (plain.id, {"every": None}, "does not recur"),
        (hourly.id, {"every": None}, "every: .* recurs and must have one; archive it to end the recurrence"),
        (hourly.id, {"not_before": None}, "not_before: .* recurs and must have one"),
        (hourly.id, {"every": "10ms"}, "'10ms' is neither an interval"),
        (hourly.id, {"remind_at": soon}, "recurs; give not_before"),
        (waiting.id, {"not_before": soon}, "waits for an event .remind_on. and cannot be scheduled too"),
    ):
        with pytest.raises(InvalidField, match=says):
            page.update(id, **changes)
    with pytest.raises(InvalidTTL, match="is not after"):
        page.update(hourly.id, not_before=later(clock, 7200))
    assert log_length(bus) == length


@pytest.mark.parametrize("verb", ["resolve", "review"])
def test_only_active_observations_can_be_rescheduled(page, clock, one, verb):
    getattr(page, verb)(one.id)
    with pytest.raises(InvalidTransition, match="cannot be rescheduled; from"):
        page.update(one.id, not_before=later(clock, 60))


def test_rescheduling_checks_the_version_and_a_retry_changes_nothing(bus, page, clock, one):
    with pytest.raises(VersionConflict):
        page.update(one.id, not_before=later(clock, 60), expected_version=9)
    moved = page.update(one.id, not_before="2h", expected_version=1, event_id="EV-1")
    length = log_length(bus)
    assert page.update(one.id, not_before="2h", expected_version=1, event_id="EV-1") == moved
    with pytest.raises(EventIdReused):
        page.update(one.id, not_before="3h", expected_version=1, event_id="EV-1")
    assert log_length(bus) == length


def test_a_cleared_observation_refuses_an_interval_of_none(page):
    added = page.add("observation", "look")
    page.resolve(added.id)
    page.clear_resolved([added.id])
    with pytest.raises(InvalidField) as refused:
        page.update(added.id, every=None, event_id="once")
    assert refused.value.field == "every"
