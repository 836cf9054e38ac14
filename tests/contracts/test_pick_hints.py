"""A pick that continues where the one before ended picks what a walk from the top would."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.commands import claim
from scratchbus.engine.steps import Call
from scratchbus.errors import ScratchbusError
from tests.clock import Clock
from tests.engines import ONE, Connect
from tests.faults.interposing import Send, interposed
from tests.inspection import copies_of, forget, project, restore, send
from tests.waiting import eventually

FILLER = 260
"""More than a walk examines before it returns a hint."""

STEPS = 150


def filler(number: int = FILLER) -> list[NewObservation]:
    """Return observations that are not wanted."""
    return [NewObservation(type="risk_alert", content="x") for _ in range(number)]


@pytest.fixture
def hint_uses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hints that picks have passed to the script."""
    used, keep = list[str](), claim._keep_hint

    def recorded(hints: dict[tuple[object, ...], str], key: tuple[object, ...], hint: str) -> None:
        if hints.get(key):
            used.append(hints[key])
        keep(hints, key, hint)

    monkeypatch.setattr(claim, "_keep_hint", recorded)
    return used


@pytest.mark.damages_the_log
@pytest.mark.engines(*ONE)
@pytest.mark.parametrize(
    ("seed", "blocks"),
    [
        (1, False),
        pytest.param(2, False, marks=pytest.mark.slow),
        pytest.param(3, False, marks=pytest.mark.slow),
        (4, True),
    ],
)
def test_each_pick_is_the_first_ready_one(
    connect: Connect, clock: Clock, hint_uses: list[str], seed: int, blocks: bool
) -> None:
    worker, other = connect("worker", max_observations=1_000), connect("other", max_observations=1_000)
    page, dice = other.page(), random.Random(seed)
    page.add_many(filler())
    known = [page.add(type, "x", tags=["wanted"]).id for type in ["risk_alert", *["observation"] * 9]]
    copies = [copies_of(other)]

    def one() -> str:
        return dice.choice(known)

    def add() -> None:
        given: dict[str, Any] = {"type": dice.choice(["risk_alert", "observation"]), "tags": ["wanted"]}
        if blocks and dice.random() < 0.3:
            given["blocked_by"] = [one()]
        if dice.random() < 0.3:
            given["ttl"] = dice.choice(["3s", "15s"])
        if dice.random() < 0.2:
            given["not_before"] = clock.now + timedelta(seconds=dice.choice([2, 10]))
        known.append(page.add(content="x", **given).id)

    def save() -> None:
        copies[0] = copies_of(other)

    changes: list[tuple[Callable[[], object], float]] = [
        (add, 5),
        (lambda: page.update(one(), tags=dice.choice([["wanted"], []])), 2),
        (lambda: page.update(one(), blocked_by=[one()] if blocks else []), 1),
        (lambda: page.update(one(), expires_at=clock.now + timedelta(seconds=dice.choice([3, 600]))), 2),
        (lambda: page.update(one(), not_before=dice.choice([None, clock.now + timedelta(seconds=5)])), 2),
        (lambda: page.claim(one(), ttl=dice.choice(["5s", "1m"])), 1),
        (lambda: page.release(one()), 2),
        (lambda: page.resolve(one()), 2),
        (lambda: page.reopen(one()), 2),
        (lambda: page.review(one()), 1),
        (lambda: page.erase(one(), reason="wrong"), 1),
        (lambda: other.page("elsewhere").add("observation", "x"), 1),
        (lambda: clock.advance(dice.choice(["1s", "4s", "20s"])), 3),
        (lambda: clock.set(clock.ms - dice.choice([1, 1_500, 5_000])), 2),
        (save, 2),
        (lambda: restore(other, copies[0]), 1),
        (lambda: worker.core.pick_hints.clear(), 0.2),
        (lambda: page.add_many(filler(60)), 0.1),
    ]
    acts, weights = zip(*changes, strict=True)
    for _ in range(STEPS):
        for _ in range(dice.choice([0, 1, 1, 2, 3])):
            with suppress(ScratchbusError):
                dice.choices(acts, weights)[0]()
        ready = [each.id for each in page.ready() if each.tags == ["wanted"]]
        job = worker.page().claim_next(tags="wanted", ttl=dice.choice(["3s", "30s"]))
        assert (job and job.id) == (ready[0] if ready else None)
        if job is not None and dice.random() < 0.3:
            job.fail("no", delay=dice.choice(["1s", "20s"]))
    assert hint_uses


def test_a_hint_does_not_outlive_the_claim_that_a_failover_lost(connect: Connect, clock: Clock) -> None:
    bus = connect(max_observations=1_000)
    page = bus.page()
    page.add_many(filler())
    wanted = page.add("observation", "x", tags=["wanted"])
    project(bus)
    copies = copies_of(bus)
    job = page.claim_next(tags="wanted", ttl="1h")
    assert job is not None
    assert job.id == wanted.id
    restore(bus, copies)
    again = page.claim_next(tags="wanted")
    assert again is not None
    assert again.id == wanted.id


@pytest.mark.parametrize("event_id", [None, "job-1"])
def test_a_hint_does_not_outlive_the_event_that_it_names(connect: Connect, clock: Clock, event_id: str | None) -> None:
    """Its writer may send an event with an id of its own again."""
    bus, other = connect(max_observations=1_000), connect("other", max_observations=1_000)
    page = bus.page()
    page.add_many(filler())
    wanted = page.add("observation", "x", tags=["wanted"])
    project(bus)
    copies = copies_of(bus)
    other.page().claim(wanted.id, ttl="1h")
    if event_id is not None:
        other.page().add("risk_alert", "job", event_id=event_id)
    assert page.claim_next(tags="wanted") is None
    restore(bus, copies)
    other.page().add("risk_alert", "at the position of the lost claim")
    if event_id is not None:
        other.page().add("risk_alert", "job", event_id=event_id)
    job = page.claim_next(tags="wanted")
    assert job is not None
    assert job.id == wanted.id


def test_an_observation_whose_blocker_ended_is_picked_after_a_long_walk(connect: Connect) -> None:
    page = connect(max_observations=1_000).page()
    page.add_many(filler())
    blocker = page.add("reminder", "first")
    wanted = page.add("risk_alert", "then", tags=["wanted"], blocked_by=[blocker.id])
    assert page.claim_next(tags="wanted") is None
    page.resolve(blocker.id)
    job = page.claim_next(tags="wanted")
    assert job is not None
    assert job.id == wanted.id


def test_a_hint_is_for_picks_with_the_same_filter(connect: Connect) -> None:
    page = connect(max_observations=1_000).page()
    page.add_many(filler())
    wanted = page.add("observation", "x", tags=["b"])
    assert page.claim_next(tags="a") is None
    job = page.claim_next(tags="b")
    assert job is not None
    assert job.id == wanted.id


def test_what_was_added_after_a_long_walk_is_picked_in_order(connect: Connect) -> None:
    page = connect(max_observations=1_000).page()
    page.add_many(filler())
    assert page.claim_next(tags="wanted") is None
    added = [page.add("observation", "x", tags=["wanted"]).id for _ in range(12)]
    picked = []
    while (job := page.claim_next(tags="wanted", ttl="1h")) is not None:
        picked.append(job.id)
    assert picked == added[::-1]


def test_a_walk_in_two_calls_rests_on_what_was_there_before_both(embedded_url: str, bus_name: str) -> None:
    with (
        Bus.connect(embedded_url, bus=bus_name, max_observations=10_000, source="test") as bus,
        Bus.connect(embedded_url, bus=bus_name, max_observations=10_000, source="other") as other,
    ):
        page = bus.page()
        for _ in range(6):
            page.add_many(filler(900))
        wanted = page.add("observation", "x", tags=["wanted"])
        project(bus)
        copies, calls = copies_of(bus), count(1)

        def claim_before_second(call: Call, send: Send) -> list[Any]:
            if call.is_write and next(calls) == 2:
                other.page().claim(wanted.id, ttl="1h")
            return send()

        with interposed(bus, claim_before_second):
            assert page.claim_next(tags="wanted") is None
        restore(bus, copies)
        job = page.claim_next(tags="wanted")
        assert job is not None
        assert job.id == wanted.id
        forget(bus)


def test_a_hint_ends_when_the_clock_is_set_back(connect: Connect, clock: Clock) -> None:
    bus = connect(max_observations=1_000)
    page = bus.page()
    page.add_many(filler())
    wanted = page.add("observation", "x", tags=["wanted"], ttl="10s")
    start = clock.ms
    clock.advance("20s")
    assert page.claim_next(tags="wanted") is None
    clock.set(start + 5_000)
    job = page.claim_next(tags="wanted")
    assert job is not None
    assert job.id == wanted.id


def heads_reads(bus: Bus) -> int:
    """Return how many commands have read heads of several observations."""
    return int(re.findall(r"cmdstat_hmget:calls=(\d+)", send(bus, "INFO", "commandstats").decode())[0])


def test_picks_continue_where_the_one_before_ended(embedded_url: str, bus_name: str) -> None:
    with Bus.connect(embedded_url, bus=bus_name, max_observations=10_000, source="test") as bus:
        page = bus.page()
        for _ in range(6):
            page.add_many(filler(900))
        page.add_many([NewObservation(type="observation", content="x", tags=["wanted"]) for _ in range(9)])
        project(bus)
        reads = []
        for _ in range(10):
            before = heads_reads(bus)
            page.claim_next(tags="wanted")
            reads.append(heads_reads(bus) - before)
        assert reads[0] > 20
        assert max(reads[1:]) < 6
        page.add_many(filler(60))
        before = heads_reads(bus)
        page.claim_next(tags="wanted")
        assert heads_reads(bus) - before > 20  # the hint is too old
        forget(bus)


def test_a_hint_is_kept_by_picks_of_what_is_newer(embedded_url: str, bus_name: str) -> None:
    with Bus.connect(embedded_url, bus=bus_name, max_observations=10_000, source="test") as bus:
        page = bus.page()
        for _ in range(2):
            page.add_many(filler(900))
        assert page.claim_next(tags="wanted") is None
        page.add_many([NewObservation(type="observation", content="x", tags=["wanted"]) for _ in range(2)])
        picked, reads = [], []
        for _ in range(3):
            before = heads_reads(bus)
            picked.append(page.claim_next(tags="wanted") is not None)
            reads.append(heads_reads(bus) - before)
        assert picked == [True, True, False]
        assert max(reads) < 6
        forget(bus)


def test_an_expired_observation_makes_no_walk_longer(embedded_url: str, bus_name: str) -> None:
    with Bus.connect(embedded_url, bus=bus_name, max_observations=10_000, source="test") as bus:
        page = bus.page()
        page.add_many(filler(900))
        expired = page.add("risk_alert", "x", tags=["wanted"], ttl="1ms")
        eventually(lambda: page.get(expired.id).status == "archived")
        assert page.claim_next(tags="wanted") is None
        before = heads_reads(bus)
        assert page.claim_next(tags="wanted") is None
        assert heads_reads(bus) - before < 3
        forget(bus)
