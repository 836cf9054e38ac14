"""Any number of expirers append each timed event once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from scratchbus import Bus, Event, NewObservation
from scratchbus.engine.steps import Call, ask
from scratchbus.scheduling import expiry
from scratchbus.scheduling.expiry import sweep
from tests.clock import Clock, hand_over
from tests.faults import workers
from tests.faults.checker import check
from tests.faults.interposing import Send, interposed
from tests.faults.processes import Crew, kill
from tests.faults.servers import Server
from tests.inspection import project
from tests.waiting import eventually

pytestmark = pytest.mark.real

DUE = 2_000


@pytest.fixture
def bus(shared_server: Server, bus_name: str) -> Iterator[Bus]:
    with Bus.connect(shared_server.url, bus=bus_name, source="parent", max_observations=10_000, shards=2) as bus:
        yield bus


def reason_of(event: Event) -> str | None:
    return getattr(event, "reason_code", None)


def count_open(bus: Bus, page: str) -> int:
    keys = bus.core.log.keys(bus.core.log.shard(page))
    return int(bus.converse(ask(keys.shard, "ZCARD", keys.open(page))))


@pytest.mark.slow
def test_two_expirers_expire_thousands_once_each(shared_server: Server, bus: Bus, crew: Crew) -> None:
    pages = ["main", "other"]
    items = [NewObservation(type="reminder", content=str(number), ttl="3s") for number in range(DUE // 10)]
    for number in range(10):
        bus.page(pages[number % 2]).add_many(items)
    processes = [crew.start(workers.expire, shared_server.url, bus.core.log.bus, "20ms") for _ in range(2)]
    processes.append(crew.start(workers.project, shared_server.url, bus.core.log.bus))
    eventually(lambda: not any(count_open(bus, page) for page in pages))
    assert bus.converse(sweep(bus.core)) == 0
    for process in processes:
        kill(process)
    ends = list(bus.events(kinds={"status_changed"}))
    assert {reason_of(event) for event in ends} == {"expired"}
    assert len(ends) == DUE
    assert set(Counter(event.subject for event in ends).values()) == {1}
    project(bus)
    assert check(bus) == []


def test_the_next_expirer_continues_after_a_kill(shared_server: Server, bus: Bus, crew: Crew) -> None:
    page = bus.page()
    items = [NewObservation(type="reminder", content=str(number), ttl="500ms") for number in range(500)]
    for _ in range(2):
        page.add_many(items)
    while before := count_open(bus, "main"):
        process = crew.start(workers.expire, shared_server.url, bus.core.log.bus, "20ms")
        eventually(lambda: count_open(bus, "main") < before)  # called immediately
        kill(process)
    ends = [event.subject for event in bus.events(kinds={"status_changed"})]
    assert len(ends) == len(set(ends)) == 1_000
    project(bus)
    assert check(bus) == []


@pytest.mark.slow
def test_an_expiry_moved_during_sweeps_is_not_forgotten(shared_server: Server, bus: Bus, crew: Crew) -> None:
    """Repeats of a keyed observation extend its expiry again and again, while expirers and a projector run."""
    page = bus.page()
    for _ in range(2):
        crew.start(workers.expire, shared_server.url, bus.core.log.bus, "5ms")
    crew.start(workers.project, shared_server.url, bus.core.log.bus)
    for number in range(600):
        page.add("reminder", "again and again", dedupe_key=f"k{number % 5}", ttl="10ms")
    eventually(lambda: count_open(bus, "main") == 0)
    ends = Counter(reason_of(event) or event.kind for event in bus.events())
    assert ends["added"] == ends["expired"]
    assert ends["added"] + ends["repeated"] == 600
    crew.close()
    project(bus)
    assert check(bus) == []


def test_an_expiry_moved_between_two_reads_is_not_forgotten(
    shared_server: Server, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The due set lags: a repeat extends the expiry just before it is read, and a projector updates it just after."""
    with Clock(shared_server.url) as clock, Bus.connect(shared_server.url, bus=bus.core.log.bus) as expirer:
        hand_over(monkeypatch)
        page = bus.page()

        def add() -> None:
            page.add("reminder", "again", dedupe_key="k", ttl="10s")

        add()
        clock.advance("9s")

        def around(call: Call, send: Send) -> list[Any]:
            if expiry.read_due.sha in call.commands[0] and call.shard == bus.core.log.shard("main") and not moved:
                moved.append(True)
                add()
                clock.advance("2s")
                replies = send()
                project(bus)
                return replies
            return send()

        moved: list[bool] = []
        with interposed(expirer, around):
            assert expirer.converse(sweep(expirer.core)) == 0
        assert moved
        assert check(bus) == []
        clock.advance("20s")
        assert expirer.converse(sweep(expirer.core)) == 1
