"""Reading ahead: in a forked child, and the memory that kept deliveries hold."""

from __future__ import annotations

import gc
import os
import signal
import tracemalloc
from collections.abc import Iterator

import pytest

from scratchbus import Bus, NewObservation
from tests.faults.servers import Server, embedded_binary


@pytest.fixture
def bus() -> Iterator[Bus]:
    server = Server(embedded_binary()).start()
    try:
        with Bus.connect(server.url, source="t", max_observations=9_999) as bus:
            yield bus
    finally:
        server.close()


def fill(bus: Bus, count: int, size: int) -> None:
    for _ in range(0, count, 500):
        bus.page().add_many([NewObservation(type="observation", content="x" * size) for _ in range(500)])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn of threads in the parent
def test_a_forked_child_continues_at_its_position(bus: Bus):
    fill(bus, 2_000, 10)
    events = bus.events()
    next(events)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if sum(1 for _ in events) == 1_999 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sum(1 for _ in events) == 1_999


def test_a_kept_delivery_does_not_keep_others_in_memory(bus: Bus):
    fill(bus, 2_000, 4_000)
    kept = []
    gc.collect()
    tracemalloc.start()
    try:
        with bus.subscribe("s") as deliveries:
            for number, delivery in enumerate(deliveries, 1):
                assert delivery.event.kind == "added"
                if number % 200 == 1:
                    kept.append(delivery)
                delivery.ack()
                if number == 2_000:
                    break
        del delivery
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(kept) == 10
    assert held < 1_000_000
