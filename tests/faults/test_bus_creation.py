"""Many clients concurrently open a bus that does not exist yet."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from scratchbus import Bus
from scratchbus.engine.drivers import Engine
from scratchbus.engine.steps import Call, ask
from scratchbus.errors import ShardsMismatch
from tests.faults import workers
from tests.faults.checker import check
from tests.faults.processes import Crew
from tests.faults.servers import Server
from tests.inspection import log_length, project

pytestmark = pytest.mark.real

CLIENTS = 10


def connect_all(server: Server, crew: Crew, bus: str, shards: list[int]) -> list[int | None]:
    """Have a process for each number of shards connect at the same moment; return the shards that each got."""
    barrier, queue = crew.barrier(CLIENTS), crew.queue()
    for number, count in enumerate(shards):
        crew.start(workers.connect, server.url, bus, f"w{number}", count, barrier, queue)
    got = [queue.get(timeout=60) for _ in shards]
    crew.join()
    return got


@pytest.mark.slow
def test_ten_concurrent_clients_create_one_bus(shared_server: Server, crew: Crew, bus_name: str) -> None:
    assert connect_all(shared_server, crew, bus_name, [4] * CLIENTS) == [4] * CLIENTS
    with Bus.connect(shared_server.url, bus=bus_name) as bus:
        assert bus.core.log.shards == 4
        assert log_length(bus) == CLIENTS
        origins = [bus.converse(ask(shard, "GET", bus.core.log.keys(shard).origin)) for shard in range(4)]
        assert len(set(origins)) == len(origins)
        project(bus)
        assert check(bus) == []
    with pytest.raises(ShardsMismatch, match="has 4 shards, not 3"):
        Bus.connect(shared_server.url, bus=bus_name, shards=3)


def test_concurrent_clients_with_other_shard_counts_are_refused(
    shared_server: Server, crew: Crew, bus_name: str
) -> None:
    got = connect_all(shared_server, crew, bus_name, [2, 4] * (CLIENTS // 2))
    with Bus.connect(shared_server.url, bus=bus_name) as bus:
        shards = bus.core.log.shards
        assert sorted(got, key=str) == [shards] * (CLIENTS // 2) + [None] * (CLIENTS // 2)
        assert log_length(bus) == CLIENTS // 2
        project(bus)
        assert check(bus) == []


@pytest.mark.parametrize("shards", [2, None])
def test_a_bus_created_during_connect_keeps_its_shards(
    shared_server: Server, bus_name: str, monkeypatch: pytest.MonkeyPatch, shards: int | None
) -> None:
    execute, created = Engine.execute, list[Bus]()

    def create_first(engine: Engine, call: Call) -> list[Any]:
        if call.commands[0][0] == "HSETNX" and not created:
            monkeypatch.setattr(Engine, "execute", execute)
            created.append(Bus.connect(shared_server.url, bus=bus_name, shards=4))
        return execute(engine, call)

    monkeypatch.setattr(Engine, "execute", create_first)
    with ExitStack() as stack:
        if shards is None:
            assert stack.enter_context(Bus.connect(shared_server.url, bus=bus_name)).core.log.shards == 4
        else:
            with pytest.raises(ShardsMismatch):
                Bus.connect(shared_server.url, bus=bus_name, shards=shards)
        assert stack.enter_context(created[0]).core.log.shards == 4
    with Bus.connect(shared_server.url, bus=bus_name) as bus:
        assert bus.core.log.shards == 4
