"""The engine's clock goes back or leaps ahead: order and promises hold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from scratchbus import Bus
from scratchbus.scheduling.expiry import sweep
from tests.clock import Clock, hand_over
from tests.faults.checker import check
from tests.faults.interposing import interposed, losing_replies
from tests.faults.servers import Server
from tests.inspection import project

pytestmark = pytest.mark.real

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def clock(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    with Clock(shared_server.url) as clock:
        hand_over(monkeypatch)
        yield clock


@pytest.fixture
def bus(shared_server: Server, bus_name: str, clock: Clock) -> Iterator[Bus]:
    with Bus.connect(shared_server.url, bus=bus_name, source="tester") as bus:
        yield bus
        project(bus)
        assert check(bus) == []


def test_positions_increase_when_the_clock_jumps(bus: Bus, clock: Clock) -> None:
    page, begin = bus.page(), clock.ms
    for turn in (0, 5_000, -DAY, 1, 0, 2 * DAY, -HOUR, 3, DAY):
        clock.set(begin + turn)
        page.add("observation", "one")
        page.link(page.add("observation", "two", dedupe_key="k").id, "goal")
    positions = [event.position for event in bus.events()]
    assert [position.seq for position in positions] == list(range(1, len(positions) + 1))
    assert all(a.ms <= b.ms for a, b in pairwise(positions))
    assert positions[-1].ms == begin + 2 * DAY


def test_expired_observations_stay_so_when_the_clock_goes_back(bus: Bus, clock: Clock) -> None:
    page = bus.page()
    old = page.add("reminder", "has an end", ttl="10s")
    clock.advance("1h")
    page.add("observation", "makes the log an hour older")
    assert page.get(old.id).status == "archived"
    clock.set(clock.ms - HOUR)
    assert page.get(old.id).status == "archived"
    assert [observation.id for observation in page.active()].count(old.id) == 0
    assert page.list(status="archived")[0].id == old.id
    assert bus.converse(sweep(bus.core)) == 1
    assert getattr(page.history(old.id)[-1], "reason_code", None) == "expired"


def test_expiry_counts_from_the_logs_time_when_the_clock_went_back(bus: Bus, clock: Clock) -> None:
    page, begin = bus.page(), clock.ms
    clock.advance("1h")
    page.add("observation", "makes the log an hour older")
    clock.set(begin)
    late = page.add("reminder", "has an end", ttl="10s")
    claim = page.claim(late.id, by="somebody", ttl="5s")
    assert bus.converse(sweep(bus.core)) == 0
    assert page.get(late.id).claim == claim
    clock.set(begin + HOUR + 6_000)
    assert bus.converse(sweep(bus.core)) == 1
    assert page.get(late.id).claim is None
    clock.set(begin + HOUR + 11_000)
    assert page.get(late.id).status == "archived"
    assert bus.converse(sweep(bus.core)) == 1
    assert bus.converse(sweep(bus.core)) == 0


@pytest.mark.parametrize("turn", [-8 * DAY, -HOUR, HOUR, 3 * DAY])
def test_a_retry_finds_its_event_when_the_clock_jumps(bus: Bus, clock: Clock, turn: int) -> None:
    page = bus.page()
    page.add("observation", "before")
    begin = clock.ms
    around = losing_replies()

    def turning(call, send):
        try:
            return around(call, send)
        finally:
            clock.set(begin + turn)

    with interposed(bus, turning):
        page.add("observation", "once", dedupe_key="k")
    assert [event.kind for event in bus.events()] == ["added", "added"]


@pytest.mark.parametrize("turn", [-8 * DAY, -HOUR, HOUR, 3 * DAY])
def test_an_event_id_is_remembered_when_the_clock_jumps(bus: Bus, clock: Clock, turn: int) -> None:
    page, begin = bus.page(), clock.ms
    first = page.add("observation", "once", event_id="e", ttl="30d")
    clock.set(begin + turn)
    assert page.add("observation", "once", event_id="e", ttl="30d") == first
    page.add("observation", "after")
    assert page.add("observation", "once", event_id="e", ttl="30d") == first
    assert len(list(bus.events())) == 2
