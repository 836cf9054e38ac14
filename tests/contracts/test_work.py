"""Competing workers: the next job, its claim and its outcome."""

import asyncio
import gc
import threading
import weakref
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus, NewObservation
from scratchbus.commands import claim as claiming
from scratchbus.commands.claim import LinkAction
from scratchbus.domain.events import Claimed as ClaimedEvent
from scratchbus.domain.values import millis
from scratchbus.engine.steps import Call, Pause
from scratchbus.errors import (
    Claimed,
    EngineForbidden,
    EngineUnreachable,
    EventIdReused,
    InvalidField,
    InvalidTTL,
    NotClaimed,
    StaleFence,
    UnknownType,
)
from scratchbus.eventlog.lag import read_clock
from scratchbus.readmodel import queries
from scratchbus.scheduling.expiry import sweep
from scratchbus.telemetry.counters import counts
from scratchbus.work import agenda, job_state
from tests.clock import ProcessClock, renew_a_minute_at_each_check
from tests.engines import ONE
from tests.faults.interposing import interposed
from tests.inspection import all_events, forget, keys_of, log_length, send
from tests.waiting import PATIENCE, eventually


def kinds(bus):
    return [event.kind for event in all_events(bus)]


def last_event(bus) -> Any:
    return all_events(bus)[-1]


def taken(page, **wanted):
    """Claim everything that matches; return the contents."""
    seen = []
    while (job := page.claim_next(**wanted)) is not None:
        seen.append(job.observation.content)
    return seen


def last_reason(bus):
    """Return the reason that the last event gives."""
    return getattr(all_events(bus)[-1], "reason", None)


def fail_in_its_block(job):
    with job:
        raise ValueError("no\nsuch thing")


# -- picking --------------------------------------------------------------------------------------------------------


def test_jobs_are_picked_by_priority_then_newest_first(page):
    for type_ in ("observation", "risk_alert", "reminder"):
        for n in range(2):
            page.add(type_, f"{type_} {n}")
    assert taken(page) == [f"{type_} {n}" for type_ in ("risk_alert", "reminder", "observation") for n in (1, 0)]


def test_a_picked_observation_is_claimed(page, clock):
    added = page.add("observation", "x")
    job = page.claim_next(by="executor-1", ttl="10s")
    assert (job.id, job.fence, job.attempt) == (added.id, 1, 1)
    assert (job.claim.by, job.claim.until) == ("executor-1", clock.now + timedelta(seconds=10))
    assert job.observation == page.get(added.id)
    assert (job.observation.claim, job.observation.attempts, job.observation.version) == (job.claim, 1, 2)


def test_only_free_active_observations_are_picked(page, clock):
    page.review(page.add("observation", "in review").id)
    page.claim(page.add("observation", "held").id, ttl="1h")
    page.add("observation", "expired", ttl="1s")
    page.resolve(page.add("observation", "resolved").id)
    page.add("observation", "free")
    clock.advance("2s")
    assert taken(page) == ["free"]


def test_only_the_wanted_types_and_tags_are_picked(page):
    page.add("risk_alert", "another type", tags=["a", "b"])
    page.add("reminder", "one tag", tags=["a"])
    page.add("reminder", "both", tags=["b", "x", "a"])
    page.add("observation", "both too", tags=["a", "b"])
    assert taken(page, types=["reminder", "observation"], tags=["a", "b"]) == ["both", "both too"]
    assert taken(page, types="reminder", tags="a") == ["one tag"]
    assert page.claim_next(types="reminder", tags=[]) is None


def test_a_type_is_not_picked_for_one_whose_name_contains_its_own(connect, tmp_path):
    file = tmp_path / "types.yaml"
    file.write_text("types:\n  build: {}\n  build_failed: {}\n  failed: {}\n")
    page = connect(observation_types=file).page()
    for type in ("build", "failed", "build_failed"):
        page.add(type, type)
    assert taken(page, types="build_failed") == ["build_failed"]


@pytest.mark.parametrize("tag", ["a,b", "a|b", "100%", "%2C", "ü ß", ",", "|", "a:b#c"])
def test_tags_of_any_characters_are_matched(page, tag):
    page.add("observation", "another", tags=["a", "b", "%", "2C"])
    page.add("observation", "with it", tags=["first", tag, "last"])
    assert taken(page, tags=[tag]) == ["with it"]


def test_picks_use_the_current_tags(page):
    one = page.add("observation", "x", tags=["old"])
    page.update(one.id, tags=["new"])
    assert page.claim_next(tags="old") is None
    page.update(one.id, content="y")
    job = page.claim_next(tags="new")
    assert job.update(tags=[]).tags == []
    job.release()
    assert page.claim_next(tags="new") is None


def test_a_pick_without_jobs_is_none_and_writes_nothing(bus, page):
    assert page.claim_next() is None
    page.review(page.add("observation", "x").id)
    length = log_length(bus)
    assert page.claim_next() is None
    assert log_length(bus) == length


def test_bad_arguments_are_refused(bus, page):
    page.add("observation", "x")
    length = log_length(bus)
    with pytest.raises(UnknownType):
        page.claim_next(types="no_such_type")
    with pytest.raises(InvalidField):
        page.claim_next(tags=[""])
    with pytest.raises(InvalidTTL):
        page.claim_next(ttl="never")
    wrongs: list[dict[str, Any]] = [{"name": ""}, {"pages": []}, {"max_attempts": 0}, {"tags": [1]}]
    for wrong in wrongs:
        with pytest.raises(InvalidField):
            bus.work(**{"name": "executors"} | wrong)
    with bus.work("executors", types="no_such_type") as jobs, pytest.raises(UnknownType):
        next(jobs)
    assert log_length(bus) == length


def test_a_lapsed_claim_is_picked_again_with_a_new_fence(bus, page, clock):
    page.add("observation", "x")
    first = page.claim_next(by="one", ttl="10s")
    assert page.claim_next(by="two") is None
    clock.advance("11s")
    second = page.claim_next(by="two")
    assert (first.fence, second.fence, second.attempt) == (1, 2, 2)
    assert kinds(bus) == ["added", "claimed", "lapsed", "claimed"]
    with pytest.raises(StaleFence):
        first.resolve()
    assert first.is_lost
    assert second.resolve(reason="done").status == "resolved"


@pytest.mark.real
def test_a_pick_searches_thousands_of_open_observations(embedded_url, bus_name):
    """More than one call of the script can search."""
    with Bus.connect(embedded_url, bus=bus_name, source="tester", max_observations=10_000) as bus:
        page = bus.page()
        page.add("reminder", "far down")
        for _ in range(6):
            page.add_many([item("risk_alert") for _ in range(900)])
        assert page.claim_next(types="reminder").observation.content == "far down"
        assert page.claim_next(types="reminder") is None
        forget(bus)


def item(type_):
    return NewObservation(type=type_, content="x")


def test_a_retry_returns_the_same_job(bus, page):
    page.add("observation", "x")
    first = page.claim_next(event_id="mine")
    page.add("observation", "y")
    length = log_length(bus)
    again = page.claim_next(event_id="mine")
    assert (again.id, again.fence, again.claim, again.observation) == (
        first.id, first.fence, first.claim, first.observation,
    )  # fmt: skip
    assert log_length(bus) == length
    with pytest.raises(EventIdReused):
        page.claim_next(event_id="mine", tags="a")


def test_plain_claims_do_not_count_as_attempts(page, clock):
    one = page.add("observation", "x")
    claim = page.claim(one.id, ttl="1m")
    page.claim(one.id, fence=claim.fence)
    page.release(one.id)
    assert page.get(one.id).attempts == 0


def test_a_change_of_status_resets_the_attempts(page, clock):
    one = page.add("observation", "x")
    page.claim_next().fail("no")
    assert (page.get(one.id).attempts, page.get(one.id).not_before is None) == (1, False)
    page.review(one.id)
    page.reopen(one.id)
    assert (page.get(one.id).attempts, page.get(one.id).not_before) == (0, None)
    assert page.claim_next().attempt == 1


# -- outcomes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "status"), [("resolve", "resolved"), ("archive", "archived"), ("review", "pending_review")]
)
def test_closing_a_job_releases_its_claim(page, verb, status):
    one = page.add("observation", "x")
    job = page.claim_next()
    after = getattr(job, verb)(reason="because")
    assert (after.status, after.reason, after.claim) == (status, "because", None)
    assert page.get(one.id) == after == job.observation
    assert job.is_done
    assert not job.is_lost


def test_a_job_stays_claimed_after_an_update_or_a_link(page):
    page.add("observation", "x")
    job = page.claim_next()
    assert job.update(content="y").content == "y"
    assert job.link("goal-1").links == ["goal-1"]
    assert not job.is_done
    assert job.observation.content == "y"
    with pytest.raises(Claimed):
        page.claim(job.id)


def test_a_released_job_does_not_count_as_an_attempt(page):
    page.add("observation", "x")
    job = page.claim_next()
    after = job.release()
    assert (after.attempts, after.not_before, after.claim) == (0, None, None)
    assert page.claim_next().attempt == 1


def test_the_delay_doubles_with_each_failed_attempt(page, clock):
    one = page.add("observation", "x")
    rests = []
    for attempt in range(1, 5):
        job = page.claim_next()
        assert job.attempt == attempt
        job.fail("no")
        assert page.claim_next() is None
        rests.append((page.get(one.id).not_before - clock.now).total_seconds())
        clock.advance(rests[-1])
    assert all(0.8 * 2**n <= rest <= 1.2 * 2**n for n, rest in enumerate(rests))


def test_a_failed_job_waits_for_the_given_delay(bus, page, clock):
    one = page.add("observation", "x")
    page.claim_next().fail("no\nway", delay="1h")
    assert page.get(one.id).not_before == clock.now + timedelta(hours=1)
    assert last_reason(bus) == "no way"
    clock.advance("59m")
    assert page.claim_next() is None
    assert page.claim(one.id).fence == 2, "a claim by id ignores the delay"
    page.release(one.id)
    clock.advance("1m")
    assert page.claim_next().id == one.id


@pytest.mark.parametrize("at_once", [0, "0s"])
def test_a_failed_job_with_a_delay_of_zero_is_free_at_once(bus, page, at_once):
    one = page.add("observation", "x")
    page.claim_next().fail("no", delay=at_once)
    again = page.claim_next()
    assert (again.id, again.attempt) == (one.id, 2)
    with pytest.raises(InvalidTTL, match="delay: 'never' is not a time to wait"):
        again.fail("no", delay="never")
    again.release()
    with bus.work("executors", retry_delay=at_once) as jobs:
        next(jobs).fail("no")
        assert next(jobs).id == one.id


def test_the_last_failed_attempt_sends_the_observation_to_review(page, clock):
    one = page.add("observation", "x")
    for _ in range(4):
        page.claim_next().fail("no", delay="1s")
        clock.advance("1s")
    after = page.claim_next().fail("the card does not answer")
    assert (after.status, after.claim, after.attempts) == ("pending_review", None, 0)
    assert page.get(one.id).reason == "gave up after 5 attempts: the card does not answer"
    assert page.claim_next() is None


@pytest.fixture(params=["no review", "review after it was resolved"])
def without_review(request, connect, tmp_path):
    """A page of a bus with a type, `chore`, that cannot be sent to review while it is active."""
    review = request.param != "no review"
    file = tmp_path / "types.yaml"
    file.write_text(
        "lifecycles:\n  short:\n    statuses: {active: open, resolved: closed"
        f"{', pending_review: open' if review else ''}}}\n"
        "    initial: [active]\n    transitions:\n      active: [resolved, archived]\n"
        f"      resolved: [{'pending_review, ' if review else ''}archived]\n"
        f"{'      pending_review: [resolved]' if review else ''}\n"
        "types:\n  chore:\n    lifecycle: short\n"
    )
    bus = connect()
    bus.push_types(file)
    return bus.page()


def test_a_type_without_review_is_delayed_after_the_last_attempt(without_review, clock):
    page = without_review
    one = page.add("chore", "x")
    for _ in range(5):
        job = page.claim_next()
        job.fail("no", delay="1s")
        clock.advance("1s")
    assert page.get(one.id).status == "active"
    assert page.get(one.id).not_before > clock.now + timedelta(seconds=30)


def test_a_job_is_resolved_together_with_its_action(bus, page):
    page.add("observation", "x")
    with bus.work("w") as jobs:
        job = next(jobs)
        done = job.resolve(reason="frozen", action="freeze-1")
    assert (done.status, done.links, done.reason, done.claim) == ("resolved", ["freeze-1"], "frozen", None)
    assert [motive.id for motive in page.trace("freeze-1").motives] == [job.id]


def test_an_update_can_release_a_job(bus, page):
    page.add("observation", "x")
    with bus.work("w") as jobs:
        job = next(jobs)
        done = job.update(content="half done", release=True)
    assert (done.content, done.claim) == ("half done", None)
    assert page.ready() == [done]


def test_an_event_id_of_a_failed_job_is_not_one_of_its_release(bus, page):
    page.add("observation", "x")
    job = page.claim_next()
    failed = job.fail("boom", delay="0s", event_id="failed")
    assert job.fail("boom", event_id="failed") == failed
    for other in (lambda: job.fail("another", event_id="failed"), lambda: job.release(event_id="failed")):
        with pytest.raises(EventIdReused):
            other()
    again = page.claim_next()
    again.release(event_id="released")
    with pytest.raises(EventIdReused):
        again.fail("boom", event_id="released")


def test_a_retried_review_of_a_job_returns_it_released(bus, page):
    page.add("observation", "x")
    with bus.work("w") as jobs:
        job = next(jobs)
        first = job.review(reason="doubtful", event_id="mine")
        assert (first.status, first.claim) == ("pending_review", None)
        assert job.review(reason="doubtful", event_id="mine") == first


def test_a_retry_of_the_last_failure_of_a_type_without_review_returns_the_first_result(bus, without_review):
    without_review.add("chore", "x")
    with bus.work("workers", max_attempts=1, types="chore") as jobs:
        job = next(jobs)
        first = job.fail("no", event_id="0123456789abcdef")
        assert job.fail("no", event_id="0123456789abcdef") == first
    assert kinds(bus).count("released") == 1


def test_the_event_id_of_another_change_is_refused_for_the_last_failure(bus, without_review):
    without_review.add("chore", "x")
    with bus.work("workers", max_attempts=1, types="chore") as jobs:
        job = next(jobs)
        job.update(content="y", event_id="0123456789abcdef")
        with pytest.raises(EventIdReused):
            job.fail("no", event_id="0123456789abcdef")


def test_a_job_fails_on_an_error_or_without_an_outcome(bus, page, clock):
    one = page.add("observation", "x")
    fail_in_its_block(page.claim_next())
    assert last_reason(bus) == "ValueError: no such thing"
    clock.advance("5s")
    with page.claim_next():
        pass
    assert last_event(bus).reason == job_state.NO_OUTCOME
    assert page.get(one.id).attempts == 2
    clock.advance("5s")
    with pytest.raises(KeyboardInterrupt), page.claim_next():
        raise KeyboardInterrupt
    assert last_event(bus).untried
    assert page.get(one.id).attempts == 2


# -- workers --------------------------------------------------------------------------------------------------------


def test_work_yields_one_job_after_another(bus, page):
    for n in range(3):
        page.add("observation", f"{n}")
    seen = []
    with bus.work("executors", types=["observation"]) as jobs:
        for job in jobs:
            seen.append(job.observation.content)
            job.resolve(reason="done")
            if len(seen) == 3:
                break
    assert seen == ["2", "1", "0"]
    assert {one.reason for one in page.list(status="resolved")} == {"done"}
    assert [event.work for event in all_events(bus) if isinstance(event, ClaimedEvent)] == ["executors"] * 3


def test_a_job_is_lost_when_its_time_is_up_but_not_when_it_is_done(bus, page, monkeypatch):
    process_clock = ProcessClock()
    monkeypatch.setattr(job_state, "time", process_clock)
    page.add("observation", "x")
    job = page.claim_next(ttl="1m")
    process_clock.advance("2m")
    assert job.is_lost
    job.resolve()
    assert (job.is_done, job.is_lost) == (True, False)


def test_a_worker_keeps_no_job_that_is_done(bus, page):
    page.add("observation", "x")
    with bus.work("executors") as jobs:
        job = next(jobs)
        job.resolve()
        done = weakref.ref(job)
        del job
        page.add("observation", "y")
        next(jobs)
        eventually(lambda: gc.collect() >= 0 and done() is None)


def test_work_with_a_concurrency_of_one_has_one_handler_at_a_time(bus, page):
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(20)])
    stop, threads = threading.Event(), []

    def handle(job):
        threads.append(threading.get_ident())
        if len(threads) == 20:
            stop.set()
        job.resolve()

    bus.work("executors").run(handle, stop)
    assert len(set(threads)) == 1


def test_handlers_at_once_no_longer_follow_the_log_after_a_stop(bus, page):
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(3)])
    stop, all_at_once = threading.Event(), threading.Barrier(3)

    def handle(job):
        all_at_once.wait(PATIENCE)
        stop.set()
        job.resolve()

    with bus.work("executors") as jobs:
        jobs.run(handle, stop, concurrency=3)
        assert {bus.feeds.feed(shard).followers for shard in range(bus.core.log.shards)} == {1}


def late_once(monkeypatch):
    """Make the first pick take longer than its claim lasts."""
    pick, late = claiming.pick, [3600.0, 0.0, 0.0]

    def slow(*given, **more):
        found = yield from pick(*given, **more)
        return found._replace(asked_at=found.asked_at - late.pop(0)) if isinstance(found, claiming.Picked) else found

    monkeypatch.setattr(agenda, "pick", slow)


def test_a_job_whose_claim_ended_during_the_pick_is_released(bus, page, monkeypatch):
    late_once(monkeypatch)
    page.add("risk_alert", "x")
    with bus.work("w") as jobs:
        job = next(jobs)
        assert (job.fence, job.attempt, job.is_lost) == (2, 1, False)
    assert kinds(bus)[1:] == ["claimed", "released", "claimed", "released"]


def test_a_job_that_is_claimed_while_its_work_is_closed_is_released(bus, page, monkeypatch):
    one, jobs, real = page.add("observation", "x"), bus.work("executors"), claiming.pick
    picked = []

    def pick(*given, **more):
        picked.append((yield from real(*given, **more)))
        jobs.close()
        return picked[0]

    monkeypatch.setattr(agenda, "pick", pick)
    assert list(jobs) == []
    assert [each.observation.id for each in picked] == [one.id]
    assert page.get(one.id).claim is None


async def test_an_async_job_whose_claim_ended_during_the_pick_is_released(engine, bus_name, monkeypatch):
    late_once(monkeypatch)
    async with await AsyncBus.connect(engine.url, source="aio", bus=bus_name, shards=engine.shards) as bus:
        await bus.page("main").add("risk_alert", "x")
        async with bus.work("w") as jobs:
            assert (await anext(jobs)).fence == 2


@pytest.mark.engines(*ONE)
def test_workers_never_share_a_job(connect):
    page = connect().page()
    page.add_many([item("observation") for _ in range(60)])
    seen, lock = [], threading.Lock()

    def work(name):
        bus, stop = connect(name), threading.Event()

        def handle(job):
            job.resolve()
            with lock:
                seen.append(job.id)

        threads.append((thread := threading.Thread(target=lambda: bus.work("w").run(handle, stop)), stop))
        thread.start()

    threads: list[tuple[threading.Thread, threading.Event]] = []
    try:
        for n in range(3):
            work(f"worker-{n}")
        eventually(lambda: len(seen) == 60)
    finally:
        for thread, stop in threads:
            stop.set()
            thread.join(30)
    assert len(set(seen)) == 60
    assert sum(event.kind == "claimed" for event in all_events(connect())) == 60


def test_jobs_of_all_pages_are_ordered_by_priority(connect):
    bus = connect()
    bus.page("one").add("reminder", "3")
    bus.page("two").add("risk_alert", "1")
    bus.page("three").add("risk_alert", "held", tags=["x"])
    bus.page("three").claim(bus.page("three").active()[0].id, ttl="1h")
    bus.page("three").add("observation", "5")
    bus.page("one").add("reminder", "2")
    bus.page("two").add("pattern_detected", "4")
    assert handled(bus, 5) == ["1", "2", "3", "4", "5"]


def test_work_ignores_a_page_name_written_by_hand(bus, page):
    send(bus, "HSET", keys_of(bus).pages, b"\xff", "0")
    page.add("observation", "one")
    assert handled(bus, 1) == ["one"]
    send(bus, "HDEL", keys_of(bus).pages, b"\xff")


def handled(bus, count, **wanted):
    seen: list[str] = []
    with bus.work("executors", **wanted) as jobs:
        while len(seen) < count:
            job = next(jobs)
            seen.append(job.observation.content)
            job.resolve()
    return seen


def test_work_can_be_limited_to_pages(connect):
    bus = connect()
    for name in ("one", "two", "three"):
        bus.page(name).add("observation", name)
    assert sorted(handled(bus, 2, pages=["one", "three"])) == ["one", "three"]
    assert handled(bus, 1, pages="two") == ["two"]


@pytest.mark.parametrize("pages", [None, ["one", "two"]])
def test_a_higher_priority_on_another_page_is_noticed_after_a_job(connect, pages):
    bus = connect()
    lower = [bus.page("one").add("observation", f"{n}").id for n in range(90)]
    with bus.work("executors", pages=pages) as jobs:
        next(jobs).resolve()
        urgent = bus.page("two").add("risk_alert", "higher")
        for job in jobs:  # the worker hears of it a moment later
            job.resolve()
            if job.observation.id == urgent.id:
                break
    assert any(bus.page("one").get(id).is_open for id in lower)


def test_work_includes_new_pages(connect):
    bus = connect()
    with working(bus) as (seen, _):
        for n in range(3):
            bus.page(f"page-{n}").add("observation", f"{n}")
            eventually(lambda: len(seen) == n + 1)  # noqa: B023  # called at once
    assert seen == ["0", "1", "2"]


class working:  # noqa: N801  # used like a function
    """Work in a thread; yield the contents it has handled, and the error that ended it, if any."""

    def __init__(self, bus, handle=lambda job: job.resolve(), **wanted):
        self.jobs, self.seen, self.ended = bus.work("executors", **wanted), [], []
        self.handle = handle
        self.thread = threading.Thread(target=self.work)

    def work(self):
        try:
            with self.jobs:
                for job in self.jobs:
                    with job:
                        self.handle(job)
                        self.seen.append(job.observation.content)
        except Exception as error:  # checked by the test
            self.ended.append(error)

    def __enter__(self):
        self.thread.start()
        return self.seen, self.ended

    def __exit__(self, *exc):
        self.jobs.close()
        self.thread.join(30)
        assert not self.thread.is_alive()


def test_an_idle_worker_wakes_for_additions_updates_and_reopens(bus, page):
    with working(bus, pages="main", tags="go") as (seen, _):
        page.add("observation", "added", tags=["go"])
        eventually(lambda: seen == ["added"])
        later = page.add("observation", "updated")
        page.update(later.id, tags=["go"])
        eventually(lambda: seen[1:] == ["updated"])
        page.reopen(later.id)
        eventually(lambda: seen[2:] == ["updated"])
        page.add("observation", "not for it")
    assert len(seen) == 3


def test_an_idle_pick_returns_when_the_first_observation_becomes_ready(bus, page):
    times = [datetime.now(UTC) + timedelta(hours=hours) for hours in (2, 1, 3)]
    for time in times:
        page.add("observation", "later", not_before=time)
    idle = bus.converse(claiming.pick(bus.core, "main", claiming.PickFilter(), None, "1m"))
    assert idle.soonest == millis(times[1])


def test_an_idle_worker_wakes_when_a_claim_is_released_or_lapses(bus, page):
    held = page.add("observation", "held")
    claim = page.claim(held.id, by="someone", ttl="1h")
    with working(bus) as (seen, _):
        page.release(held.id, by="someone", fence=claim.fence)
        eventually(lambda: seen == ["held"])
    lapsing = page.add("observation", "lapsing")
    page.claim(lapsing.id, ttl="300ms")
    with working(bus) as (seen, _):
        eventually(lambda: seen == ["lapsing"])


def test_a_failed_job_is_retried_after_its_delay(bus, page):
    page.add("observation", "x")
    tries = []

    def handle(job):
        tries.append(job.attempt)
        if job.attempt < 3:
            raise ValueError("not yet")
        job.resolve()

    with working(bus, handle, retry_delay="20ms") as (seen, _):
        eventually(lambda: seen == ["x"])
    assert tries == [1, 2, 3]


def test_a_job_that_always_fails_goes_to_review(bus, page, capfd):
    one = page.add("observation", "x")

    def handle(job):
        raise ValueError("never")

    with working(bus, handle, retry_delay="10ms", max_attempts=3):
        eventually(lambda: page.get(one.id).status == "pending_review")
    assert page.get(one.id).reason == "gave up after 3 attempts: ValueError: never"
    logged = [line for line in capfd.readouterr().err.splitlines() if "a handler failed" in line]
    assert len(logged) == 3
    assert all(f"attempt={n}" in line and "ValueError: never" in line for n, line in enumerate(logged, 1))


def test_a_job_with_one_attempt_goes_to_review_after_it(bus, page):
    page.add("observation", "x")
    with bus.work("executors", max_attempts=1) as jobs:
        assert next(jobs).fail("no").reason == "gave up after 1 attempt: no"


def test_a_job_whose_workers_vanish_goes_to_review(bus, page, clock, capfd):
    one = page.add("pattern_detected", "deadly")
    for _ in range(2):
        assert page.claim_next(ttl="10s").id == one.id
        clock.advance("11s")
    page.add("risk_alert", "harmless")
    with bus.work("executors", max_attempts=2) as jobs:
        first = next(jobs)
        first.resolve()
        page.add("pattern_detected", "another", tags=["newer"])
        next(jobs).resolve()
        last = page.add("observation", "last")
        assert next(jobs).id == last.id  # not the deadly one, which has a higher priority
    assert first.observation.content == "harmless"
    given_up = page.get(one.id)
    assert (given_up.status, given_up.claim) == ("pending_review", None)
    assert given_up.reason == "gave up after 2 attempts: its workers vanished"
    (logged,) = [line for line in capfd.readouterr().err.splitlines() if "giving up" in line]
    assert one.id in logged


def test_asking_for_the_next_job_fails_an_unfinished_one(bus, page, clock):
    page.add("observation", "x")
    page.add("risk_alert", "y")
    with bus.work("executors") as jobs:
        first = next(jobs)
        assert next(jobs).id != first.id
        assert page.get(first.id).attempts == 1
        assert page.get(first.id).claim is None


def test_leaving_work_releases_its_job_and_an_exception_fails_it(bus, page):
    one = page.add("observation", "x")
    with bus.work("executors") as jobs:
        next(jobs)
    assert (page.get(one.id).claim, page.get(one.id).attempts) == (None, 0)
    with pytest.raises(ZeroDivisionError), bus.work("executors") as jobs:
        1 // (next(jobs).attempt - 1)
    assert (page.get(one.id).claim, page.get(one.id).attempts) == (None, 1)


def test_an_error_of_the_engine_that_leaves_work_does_not_count_as_an_attempt(bus, page):
    one = page.add("observation", "x")

    def fail():
        with bus.work("executors") as jobs:
            next(jobs)
            raise EngineUnreachable("it is down")

    with pytest.raises(EngineUnreachable):
        fail()
    assert (page.get(one.id).claim, page.get(one.id).attempts) == (None, 0)


def test_a_claim_is_renewed_while_its_handler_runs(bus, page, monkeypatch):
    renew_a_minute_at_each_check(monkeypatch)
    one = page.add("observation", "x")
    with bus.work("executors", ttl="1m") as jobs:
        job = next(jobs)
        eventually(lambda: kinds(bus).count("claimed") >= 3)
        assert not job.is_lost
        assert job.resolve().status == "resolved"
    assert "lapsed" not in kinds(bus)
    assert page.get(one.id).fence == 1


def test_the_keeper_renews_after_a_third_of_the_ttl_and_during_a_write_after_half_of_it(bus, page):
    page.add("observation", "x")
    with bus.work("executors", ttl="10m", handler_timeout="1h") as jobs:
        job = next(jobs)
        now = monotonic()
        assert not job.is_due(now + 100)
        assert job.is_due(now + 250)
        writing = job.command_steps(LinkAction, None, action="goal")
        next(writing)  # sent, and not yet answered
        assert not job.is_due(now + 250)
        assert job.is_due(now + 350)
        writing.close()
        assert job.is_due(now + 250)


def test_the_keeper_waits_after_a_renewal_that_failed(bus, page, monkeypatch):
    def unreachable(*args, **more):
        yield from ()
        raise EngineUnreachable("gone for a moment")

    monkeypatch.setattr(job_state, "NAP", 150)
    monkeypatch.setattr(claiming, "claim", unreachable)
    page.add("observation", "x")
    with bus.work("executors", ttl="5m") as jobs:
        job, now = next(jobs), monotonic()
        bus.converse(job.keep())
        assert not job.is_due(now + 120)
        assert job.is_due(now + 250)


def test_a_refused_renewal_is_logged_as_a_loss_unless_the_job_has_its_outcome(bus, page, clock, capfd):
    for content in ("done", "lost"):
        page.add("observation", content)
    lost, done = page.claim_next(ttl="1m"), page.claim_next(ttl="1m")
    calls = list[Call]()

    def around(call, send):  # the keeper comes between the write of the outcome and its reply
        reply = send()
        if call.is_write and not calls:
            calls.append(call)
            bus.converse(done.keep())
        return reply

    with interposed(bus, around):
        done.resolve()
    bus.converse(done.keep())
    assert (len(calls), done.is_done, done.is_lost) == (1, True, False)
    assert "lost a claim" not in capfd.readouterr().err
    clock.advance("2m")
    assert page.claim_next(by="another").id == lost.id
    bus.converse(lost.keep())
    assert lost.is_lost
    assert capfd.readouterr().err.count("lost a claim") == 1


def test_a_hung_handler_loses_its_job(bus, connect, page):
    page.add("observation", "x")
    with bus.work("executors", ttl="200ms", handler_timeout="300ms") as jobs:
        slow = next(jobs)
        with connect("another").work("executors") as others:
            taken = next(others)
            assert taken.fence > slow.fence
            assert slow.is_lost
            with pytest.raises(StaleFence):
                slow.resolve()
            taken.resolve()


def test_work_ends_at_a_stop(bus, page):
    stop = threading.Event()
    thread = threading.Thread(target=bus.work("executors").run, args=(lambda job: None, stop))
    thread.start()
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_closing_ends_the_iteration(bus, page):
    with working(bus) as (_, ended):
        pass
    assert ended == []


def test_work_continues_on_the_new_log_after_a_flush(connect):
    bus = connect()
    with working(bus) as (seen, ended):
        bus.page().add("observation", "before")
        eventually(lambda: seen == ["before"])
        forget(bus)
        bus.page("other").add("observation", "after")
        eventually(lambda: seen == ["before", "after"])
    assert ended == []


def test_a_worker_waits_for_an_unreachable_engine(bus, page, monkeypatch, capfd):
    real, away = claiming.pick, [3]

    def pick(*args, **named):
        if away[0]:
            away[0] -= 1
            raise EngineUnreachable("gone for a while")
        return (yield from real(*args, **named))

    monkeypatch.setattr(agenda, "pick", pick)
    page.add("observation", "x")
    with working(bus) as (seen, ended):
        eventually(lambda: seen == ["x"])
    assert ended == []
    assert capfd.readouterr().err.count("waiting for the engine") == 1


def test_a_worker_whose_search_of_the_pages_failed_searches_them_again(bus, page, monkeypatch):
    real, away = queries.page_names, [True]

    def page_names(keys):
        if away:
            away.clear()
            raise EngineUnreachable("gone for a moment")
        return (yield from real(keys))

    page.add("observation", "x")
    with working(bus, tags="other"):  # follows the log, so the next worker does not begin with a resync
        feeds = [bus.feeds.feed(shard) for shard in range(bus.core.log.shards)]
        eventually(lambda: all(feed._cursor is not None for feed in feeds))
        monkeypatch.setattr(agenda, "page_names", page_names)
        with working(bus) as (seen, ended):
            eventually(lambda: seen == ["x"])
    assert (away, ended) == ([], [])


def test_a_long_job_collects_no_more_than_the_pages_of_new_events(bus, page):
    page.add("observation", "x")
    with bus.work("executors") as jobs:
        job = next(jobs)
        more = [page.add("observation", str(n)) for n in range(20)]
        eventually(lambda: bus.feeds.feed(more[-1].position.shard).is_past(more[-2].position))
        assert len(jobs._agenda._offered) == 1
        job.resolve()
        assert next(jobs).observation.content == "19"


def interrupted(monkeypatch, times=1, then=lambda: None):
    """Let the engine be away just after a pick has claimed something, and be away again this often; then call this."""
    real, away = queries.get, [True] * times

    def get(*args):
        if away:
            away.pop()
            then()
            raise EngineUnreachable("gone for a moment")
        return (yield from real(*args))

    monkeypatch.setattr(claiming, "get", get)


@pytest.mark.parametrize("times", [1, 2])
def test_a_job_claimed_before_the_engine_went_away_is_handed_out(bus, page, monkeypatch, times):
    interrupted(monkeypatch, times)
    page.add("observation", "x")
    with working(bus) as (seen, ended):
        eventually(lambda: seen == ["x"])
    assert ended == []
    assert kinds(bus).count("claimed") == 1


def test_a_job_cleared_while_the_engine_was_away_is_skipped(bus, page, monkeypatch):
    gone = page.add("observation", "gone")

    def clear():
        page.resolve(gone.id)
        page.clear_resolved([gone.id])
        page.add("observation", "x")

    handled = []

    def handle(job):
        handled.append(job.observation.content)
        job.resolve()

    interrupted(monkeypatch, then=clear)
    with working(bus, handle) as (_, ended):
        eventually(lambda: handled)
    assert (handled, ended) == (["x"], [])


def test_a_pick_that_another_worker_took_over_before_it_was_read_picks_the_next_one(connect, page, clock, monkeypatch):
    for content in ("y", "x"):
        page.add("observation", content)
    read, others = queries.get, [connect(source="other").page(page.name)]

    def late(*given):
        if others:
            clock.advance("2s")
            assert others.pop().claim_next(ttl="1m").observation.content == "x"
        return (yield from read(*given))

    monkeypatch.setattr(claiming, "get", late)
    job = page.claim_next(ttl="1s")
    assert (job.observation.content, job.observation.claim.by) == ("y", "tester")


def test_a_retried_pick_returns_its_observation_even_if_it_was_resolved_since(page):
    page.add("observation", "later")
    page.add("observation", "x")
    picked = page.claim_next(event_id="mine").observation
    page.resolve(picked.id)
    assert page.claim_next(event_id="mine").observation.id == picked.id
    assert page.active()[0].claim is None, "of the other one"


def test_a_release_in_the_name_of_the_bus_itself_is_the_same_as_without_a_name(bus, page):
    seen = page.add("observation", "x")
    page.claim(seen.id)
    first = page.release(seen.id, event_id="mine")
    assert page.release(seen.id, by="tester", event_id="mine") == first
    with pytest.raises(EventIdReused):
        page.release(seen.id, by="other", event_id="mine")


@pytest.mark.real
def test_a_retried_job_knows_when_its_claim_has_ended(real_bus, monkeypatch):
    def a_minute_later(shard):
        return (yield from read_clock(shard)) + 60_000

    page = real_bus.page()
    page.add("observation", "x")
    for _ in range(2):
        assert not page.claim_next(event_id="mine", ttl="1m").is_lost
    monkeypatch.setattr(claiming, "read_clock", a_minute_later)
    assert page.claim_next(event_id="mine", ttl="1m").is_lost


def test_a_claimed_observation_can_expire(bus, page, clock):
    one = page.add("observation", "x", ttl="1m")
    job = page.claim_next(ttl="1h")
    clock.advance("2m")
    bus.converse(sweep(bus.core))
    with pytest.raises(StaleFence):
        job.resolve()
    assert page.get(one.id).reason_code == "expired"


async def test_async_workers_behave_the_same(engine, bus_name, connect):
    page = connect().page()
    for n in range(6):
        page.add("observation", f"{n}")
    async with await AsyncBus.connect(engine.url, source="aio", bus=bus_name, shards=engine.shards) as bus:
        seen, stop = [], asyncio.Event()

        async def handle(job):
            seen.append(job.observation.content)
            if job.observation.content == "3" and job.attempt == 1:
                raise ValueError("no")
            await job.link("goal")
            await job.resolve(reason="done")
            if len(seen) == 8:
                stop.set()

        works = [bus.work("executors", retry_delay="20ms") for _ in range(2)]
        tasks = [asyncio.create_task(work.run(handle, stop)) for work in works]
        page.add("observation", "later")
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)
        for work in works:
            await work.close()
        assert sorted(seen) == ["0", "1", "2", "3", "3", "4", "5", "later"]
        job = await bus.page().claim_next()
        assert job is None


def test_outcomes_of_jobs_are_counted_for_metrics(bus, page):
    before = dict(counts.jobs)
    for number in range(3):
        page.add("observation", f"{number}")
    with bus.work("workers", max_attempts=1) as jobs:
        next(jobs).resolve()
        next(jobs).fail("no")
        next(jobs).archive()
    made = {what: count - before.get(what, 0) for what, count in counts.jobs.items()}
    assert made == {"claimed": 3, "resolved": 1, "failed": 1, "reviewed": 1, "archived": 1}


def test_a_failure_that_is_refused_is_not_counted(bus, page):
    page.add("observation", "x")
    with bus.work("workers") as jobs:
        job = next(jobs)
        page.release(job.id, by=job.claim.by, fence=job.fence)
        before = counts.jobs["failed"]
        with pytest.raises((StaleFence, NotClaimed)):
            job.fail("no")
        assert counts.jobs["failed"] == before


def open_badly_named_file():
    raise OSError("cannot open b\udcff.txt")  # a name that is not UTF-8


def test_a_job_fails_with_a_reason_that_is_not_valid_unicode(bus, page):
    page.add("observation", "a")
    with bus.work("crew", max_attempts=2, retry_delay=0) as jobs:
        with next(jobs):
            open_badly_named_file()
        next(jobs).fail("not \udcff either")
    (given_up,) = page.list(status="pending_review")
    assert given_up.reason == "gave up after 2 attempts: not ? either"


def test_closed_work_hands_out_no_jobs_to_several_handlers(bus, page):
    page.add("observation", "x")
    jobs, handled = bus.work("executors"), list[Any]()
    jobs.close()
    handlers = threading.Thread(target=jobs.run, args=(handled.append,), kwargs={"concurrency": 3}, daemon=True)
    handlers.start()
    handlers.join(PATIENCE)
    assert (handlers.is_alive(), handled) == (False, [])


def test_work_that_is_closed_during_its_search_no_longer_follows_the_log(bus, monkeypatch):
    jobs = bus.work("executors")
    follow = jobs._agenda._follow
    monkeypatch.setattr(jobs._agenda, "_follow", lambda: (jobs.close(), follow()))
    assert next(jobs, None) is None
    assert [bus.feeds.feed(shard).followers for shard in jobs._agenda.shards] == [0] * len(jobs._agenda.shards)


def test_work_whose_job_cannot_be_settled_no_longer_follows_the_log(bus, page, monkeypatch):
    page.add("observation", "x")
    jobs = bus.work("executors")
    next(jobs)
    refuse_jobs(monkeypatch)
    with pytest.raises(EngineForbidden):
        jobs.__exit__(ValueError, ValueError("no"), None)
    assert [bus.feeds.feed(shard).followers for shard in jobs._agenda.shards] == [0] * len(jobs._agenda.shards)


async def test_a_cancelled_wait_for_a_job_leaves_none_claimed(engine, bus_name):
    async with AsyncBus.connect(engine.url, source="w", bus=bus_name, shards=engine.shards) as bus:
        page = bus.page()
        for n in range(30):
            await page.add("observation", str(n))
        for steps in range(30):
            async with bus.work("executors", pages="main") as jobs:
                waiting = asyncio.ensure_future(anext(jobs))
                for _ in range(steps):
                    await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait({waiting})
        assert [(each.claim, each.attempts) for each in await page.active()] == [(None, 0)] * 30


async def test_async_work_made_before_the_bus_is_open_covers_all_shards(engine_url, bus_name):
    with Bus.connect(engine_url, source="tester", bus=bus_name, shards=4) as bus:
        for n in range(8):
            bus.page(f"page-{n}").add("observation", f"page-{n}")
    unopened, seen = AsyncBus.connect(engine_url, source="w", bus=bus_name), set[str]()
    async with unopened.work("executors") as jobs:
        while len(seen) < 8:
            job = await asyncio.wait_for(anext(jobs), PATIENCE)
            seen.add(job.observation.page)
            await job.resolve()
    await unopened.close()


def refuse_jobs(monkeypatch):
    """Let every write of a job fail with an error that does not pass."""

    def refused(*_, **__):
        yield Pause(0)
        raise EngineForbidden("the user may not write")

    monkeypatch.setattr(job_state.JobState, "command_steps", refused)


def test_all_handlers_end_when_one_cannot_settle_its_job(bus, page, monkeypatch):
    page.add("observation", "x")
    jobs, raised = bus.work("executors"), []

    def run():
        with pytest.raises(EngineForbidden) as error:
            jobs.run(lambda job: refuse_jobs(monkeypatch), concurrency=3)
        raised.append(error.value)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(PATIENCE)
    assert len(raised) == 1


async def test_all_tasks_end_when_a_handler_cannot_settle_its_job(engine, bus_name, monkeypatch):
    async with AsyncBus.connect(engine.url, source="w", bus=bus_name, shards=engine.shards) as bus:
        await bus.page().add("observation", "x")
        before = asyncio.all_tasks()

        async def handle(job):
            refuse_jobs(monkeypatch)

        jobs = bus.work("executors")
        with pytest.raises(EngineForbidden):
            await asyncio.wait_for(jobs.run(handle, concurrency=3), PATIENCE)
        await asyncio.sleep(0)
        assert [task for task in asyncio.all_tasks() - before if "concurrency_async" in repr(task)] == []
