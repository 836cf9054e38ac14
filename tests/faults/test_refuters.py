"""A refutation reaches all dependents, despite kills and concurrent additions."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from scratchbus import Bus, Observation
from scratchbus.page import Page
from tests.faults import refuters, workers
from tests.faults.checker import check
from tests.faults.processes import Crew
from tests.faults.servers import Server
from tests.inspection import project, send
from tests.waiting import eventually

pytestmark = pytest.mark.real

ADDERS = 8


@pytest.fixture
def bus(shared_server: Server, bus_name: str) -> Iterator[Bus]:
    with Bus.connect(shared_server.url, bus=bus_name, source="parent", max_observations=100_000, shards=2) as bus:
        yield bus


def reviews(bus: Bus) -> list[str]:
    events = bus.events(kinds={"status_changed"})
    return [event.subject for event in events if getattr(event, "reason_code", None) == "reviewed"]


@pytest.mark.parametrize("batches", [pytest.param(0, marks=pytest.mark.slow), 1, 2, 3])
def test_the_expirer_completes_a_killed_refutation(shared_server: Server, bus: Bus, crew: Crew, batches: int) -> None:
    pages = [bus.page(name) for name in ("main", "a", "b", "c", "d")]
    wrong = pages[0].add("observation", "wrong")
    above = [page.add("observation", "above", evidence=[wrong.id]) for page in pages for _ in range(3)]
    refuter = crew.start(refuters.refute_and_die, shared_server.url, bus.core.log.bus, wrong.id, batches)
    refuter.join(30)
    assert refuter.exitcode == -signal.SIGKILL
    assert pages[0].get(wrong.id).reason_code == "refuted"
    assert len(reviews(bus)) == 3 * (1 + batches)
    for _ in range(2):
        crew.start(workers.expire, shared_server.url, bus.core.log.bus, "20ms")
    eventually(lambda: len(reviews(bus)) >= len(above))
    eventually(lambda: _is_at_its_end(bus))
    assert sorted(reviews(bus)) == sorted(each.id for each in above)
    assert all(bus.page(each.page).get(each.id).chain == [wrong.id] for each in above)
    crew.close()
    project(bus)
    assert check(bus) == []


def _is_at_its_end(bus: Bus) -> bool:
    """Return whether the expirers have processed every event, including the reviews."""
    seen = send(bus, "GET", bus.core.log.keys(0).reminders)
    return bool(seen == str(bus.position()).encode())


@pytest.mark.slow
def test_a_refutation_reviews_all_earlier_dependents_under_load(shared_server: Server, bus: Bus, crew: Crew) -> None:
    page, shard_of = bus.page(), bus.core.log.shard
    names = ["main", next(name for name in "abcdef" if shard_of(name) != shard_of("main"))]
    wrong = page.add("observation", "wrong")
    barrier, added = crew.barrier(ADDERS + 1), crew.queue()
    for number in range(ADDERS):
        crew.start(
            refuters.add_dependents, shared_server.url, bus.core.log.bus, names[number % 2], wrong.id, barrier, added
        )  # fmt: skip
    barrier.wait()
    eventually(lambda: bus.position().shards[0].seq + bus.position().shards[1].seq > 100)
    page.refute(wrong.id, reason="misread")
    refuted = page.history(wrong.id)[-1]
    before = 0
    for name, ids in (added.get(timeout=60) for _ in range(ADDERS)):
        for each in _all(bus.page(name), ids):
            if each.added < refuted.position if each.shard == refuted.shard else each.added_ms < refuted.ms:
                before += 1
                assert (each.status, each.chain[0]) == ("pending_review", wrong.id)
    assert before >= 100
    crew.join()
    project(bus)
    assert check(bus) == []


def _all(page: Page, ids: list[str]) -> list[Observation]:
    found = {each.id: each for each in page.list(limit=None)}
    return [found[id] for id in ids]
