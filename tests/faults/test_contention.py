"""Eight processes on one page: each claim and transition has one winner, and room and keys stay consistent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import pytest

from scratchbus import Bus, NewObservation, Page
from scratchbus.errors import StaleFence
from tests.clock import Clock, hand_over
from tests.faults import workers
from tests.faults.checker import check
from tests.faults.processes import Crew
from tests.faults.servers import Server
from tests.inspection import project

pytestmark = pytest.mark.real

PROCESSES = 8


@pytest.fixture
def bus(shared_server: Server, bus_name: str) -> Iterator[Bus]:
    with Bus.connect(shared_server.url, bus=bus_name, source="parent", max_observations=1_000) as bus:
        yield bus


def assert_sound(bus: Bus) -> None:
    assert check(bus) == []
    project(bus)
    assert check(bus) == []


def test_each_claim_and_each_transition_has_one_winner(shared_server: Server, bus: Bus, crew: Crew) -> None:
    items = [NewObservation(type="observation", content=f"wanted by all, {n}", dedupe_key=f"k{n}") for n in range(12)]
    ids = [observation.id for observation in bus.page().add_many(items)]
    barrier, queue = crew.barrier(PROCESSES), crew.queue()
    for number in range(PROCESSES):
        crew.start(workers.contend, shared_server.url, bus.core.log.bus, f"w{number}", ids, barrier, queue)
    winners: dict[tuple[str, str], list[str]] = defaultdict(list)
    ended = 0
    while ended < PROCESSES:
        if (win := queue.get(timeout=60)) is None:
            ended += 1
        else:
            winners[win[:2]].append(win[2])
    crew.join()
    assert {race: len(names) for race, names in winners.items()} == {
        (race, id): 1 for race in ("claimed", "released", "resolved", "reopened", "archived") for id in ids
    }
    events = Counter((event.kind, event.subject) for event in bus.events())
    assert all(events["claimed", id] == events["released", id] == 1 for id in ids)
    assert all(events["status_changed", id] == 3 for id in ids)
    assert_sound(bus)


EVENTS = {
    "_update": ("updated", None),
    "_link": ("linked", None),
    "_claim": ("claimed", None),
    "_resolve": ("status_changed", "resolved"),
    "_reopen": ("status_changed", "reopened"),
}
"""The kind and reason code of the event of each job, except for those that add, which are counted together."""


def crowd(server: Server, bus: Bus, crew: Crew, jobs: int) -> None:
    """Have eight processes do this many jobs each on a full page; compare their counts with the log."""
    barrier, queue = crew.barrier(PROCESSES), crew.queue()
    for number in range(PROCESSES):
        crew.start(workers.crowd, server.url, bus.core.log.bus, f"w{number}", jobs, barrier, queue)
    done = dict(queue.get(timeout=30 + jobs / 10) for _ in range(PROCESSES))
    crew.join()
    events = list(bus.events())
    for name, count in done.items():
        own = Counter((event.kind, getattr(event, "reason_code", None)) for event in events if event.by == name)
        added = own["added", None] + own["repeated", None]
        assert added == count["_add"] + count["_add_keyed"] + 3 * count["_add_many"], name
        assert {job: own[kind] for job, kind in EVENTS.items()} == {job: count[job] for job in EVENTS}, name
    assert len(bus.page().active()) <= 12
    assert any(getattr(event, "reason_code", None) == "displaced" for event in events)
    assert any(event.kind == "repeated" for event in events)
    assert_sound(bus)


@pytest.mark.slow
def test_room_and_keys_stay_consistent_on_a_full_page(shared_server: Server, bus: Bus, crew: Crew) -> None:
    crowd(shared_server, bus, crew, jobs=60)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_room_and_keys_stay_consistent_under_long_load(shared_server: Server, bus: Bus, crew: Crew) -> None:
    crowd(shared_server, bus, crew, jobs=2_000)


def test_a_lapsed_fence_is_refused_for_every_operation(
    shared_server: Server, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Clock(shared_server.url) as clock:
        hand_over(monkeypatch)
        page = bus.page()
        id = page.add("observation", "claimed twice").id
        lapsed = page.claim(id, by="first", ttl="10s").fence
        clock.advance("11s")
        for state in ("free", "claimed by another"):
            before = bus.position()
            for attempt in _fenced(page, id, lapsed):
                with pytest.raises(StaleFence):
                    attempt()
            assert bus.position() == before
            if state == "free":
                page.claim(id, by="second", ttl="10s")
        assert page.get(id).claim.by == "second"
    assert check(bus) == []


def _fenced(page: Page, id: str, fence: int) -> Iterator[Callable[[], object]]:
    yield lambda: page.update(id, content="else", fence=fence)
    yield lambda: page.resolve(id, fence=fence)
    yield lambda: page.claim(id, by="first", fence=fence)
    yield lambda: page.release(id, by="first", fence=fence)
    yield lambda: page.link(id, "goal-1", fence=fence)
