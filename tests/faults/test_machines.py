"""A power cut loses only unsynced bytes, and a shifted clock affects one engine only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.domain.events import Added
from scratchbus.errors import ScratchbusError
from tests.faults.checker import check
from tests.faults.machines import Machine, compiler
from tests.faults.servers import DURABLE, embedded_binary
from tests.inspection import log_length, project
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.real, pytest.mark.skipif(compiler() is None, reason="needs a C compiler on Linux")]


@pytest.fixture(params=["always", "everysec"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    machine = Machine(embedded_binary(), **DURABLE | {"appendfsync": request.param})
    try:
        yield machine.start()
    finally:
        machine.close()


@pytest.mark.slow
@pytest.mark.parametrize("torn", [None, Random(1), Random(2)], ids=["all", "torn", "torn elsewhere"])
def test_a_power_cut_loses_no_more_than_the_ack_level_allows(machine: Machine, torn: Random | None) -> None:
    """Synced batches remain, and what is lost is the end of the log, in whole batches."""
    level = {"always": "fsync", "everysec": "memory"}[machine.config["appendfsync"]]
    acknowledged: list[int] = []

    bus = Bus.connect(machine.url, bus="b", source="writer", ack=level)

    def write() -> None:
        with suppress(ScratchbusError):
            for number in range(10_000):
                items = [NewObservation(type="observation", content=f"{number}.{part}") for part in range(3)]
                bus.page().add_many(items)
                acknowledged.append(number)
                time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    eventually(lambda: len(acknowledged) > 20)
    assert machine.cut_power(torn, within=PATIENCE) > 0
    bus.close()  # ends calls that wait for the engine
    writer.join()
    machine.start()
    with Bus.connect(machine.url, bus="b", source="judge") as bus:
        texts = [event.content for event in bus.events() if isinstance(event, Added)]
        project(bus)
        assert check(bus) == []
    assert texts == [f"{number}.{part}" for number in range(len(texts) // 3) for part in range(3)]
    if level == "fsync":
        assert len(texts) // 3 >= len(acknowledged)


def test_a_power_cut_loses_acknowledged_but_unsynced_writes() -> None:
    """Shows that the cut is real: an engine that syncs once a second loses acknowledged writes."""
    machine = Machine(embedded_binary(), **DURABLE | {"appendfsync": "everysec"})
    lost = 0
    try:
        while not lost:  # on a busy machine a sync may happen between the last write and the cut
            with Bus.connect(machine.start().url, bus="b", source="writer") as bus:
                bus.page().add("observation", "one")
                acknowledged = log_length(bus)
            lost = machine.cut_power()
        with Bus.connect(machine.start().url, bus="b", source="reader") as bus:
            assert log_length(bus) < acknowledged
    finally:
        machine.close()


def test_a_shifted_clock_affects_one_engine_only() -> None:
    machines = [Machine(embedded_binary()) for _ in range(2)]
    try:
        for machine, skew in zip(machines, (5000.0, -5000.0), strict=True):
            machine.skew = skew
            machine.start()
        ahead, behind = (machine.client().time()[0] for machine in machines)
        assert 9990 < ahead - behind < 10010
        machines[0].skew = -5000.0
        eventually(lambda: abs(machines[0].client().time()[0] - behind) < 10)  # the engine caches its clock
    finally:
        for machine in machines:
            machine.close()
