"""A bus on a master with real sentinels: after a failover, the bus follows to the new master."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.domain.events import Added
from scratchbus.errors import EngineForbidden, EngineMisconfigured, EngineUnreachable, LogRewound
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.projector import run_projector
from tests.faults.checker import Acknowledged, check
from tests.faults.clusters import MASTER_NAME, Watched, ask
from tests.faults.loads import Load, Reading
from tests.faults.roles import READS, login, write_access_list
from tests.faults.servers import free_port
from tests.inspection import project
from tests.threads import Threads
from tests.waiting import eventually

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def watched() -> Iterator[Watched]:
    """A new group for each test, since sentinels refuse another failover for ten seconds."""
    with Watched() as watched:
        yield watched


@pytest.fixture
def bus(watched: Watched, bus_name: str) -> Iterator[Bus]:
    with Bus.connect(watched.url, bus=bus_name, source="tester", max_observations=100_000) as bus:
        yield bus
        for shard in range(bus.core.log.shards):
            bus.converse(catch_up(bus.core.log, shard))
        assert check(bus) == []


def test_a_sentinel_url_connects_to_the_master(watched: Watched, bus: Bus) -> None:
    added = bus.page().add("observation", "x")
    assert bus.core.log.shards == 1
    with Bus.connect(watched.master.tcp_url, bus=bus.core.log.bus) as direct:
        assert direct.page().get(added.id) == added
    one = watched.sentinels[2].port
    with Bus.connect(
        f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{one}/{MASTER_NAME}", bus=bus.core.log.bus
    ) as via_second:
        assert via_second.page().list() == [added]
    with pytest.raises(EngineMisconfigured, match="know no master 'other'; check the name"):
        Bus.connect(watched.url.replace(f"/{MASTER_NAME}", "/other"))


def test_servers_and_sentinels_are_not_mixed_up(watched: Watched) -> None:
    with pytest.raises(EngineMisconfigured, match="is not a sentinel; write redis://"):
        Bus.connect(f"redis+sentinel://127.0.0.1:{watched.master.port}/{MASTER_NAME}")
    with pytest.raises(EngineMisconfigured, match=r"is a sentinel; write redis\+sentinel://"):
        Bus.connect(watched.sentinels[0].tcp_url)


def test_absent_sentinels_are_unreachable() -> None:
    with pytest.raises(EngineUnreachable, match="does not answer") as caught:
        Bus.connect(f"redis+sentinel://me:s3cr3t@127.0.0.1:{free_port()}/name?sentinel_password=s3cr4t")
    assert "s3cr" not in str(caught.value)


async def test_an_asyncio_bus_waits_for_a_failover(watched: Watched, bus_name: str) -> None:
    async with AsyncBus.connect(watched.url, bus=bus_name, source="tester") as bus:
        await bus.page().add("observation", "before")
        watched.fail_over()
        await bus.page().add("observation", "after")
        assert [seen.content for seen in await bus.page().list()] == ["after", "before"]


async def test_a_failover_duplicates_no_grouped_additions(watched: Watched, bus_name: str) -> None:
    async with AsyncBus.connect(watched.url, bus=bus_name, source="tester", max_observations=10_000) as bus:
        await bus.page().add("observation", "before")
        adding = asyncio.gather(*(bus.page().add("observation", f"{number}") for number in range(50)))
        await asyncio.to_thread(watched.fail_over)
        await adding
        await asyncio.gather(*(bus.page().add("observation", f"{number}") for number in range(50, 100)))
        contents = [event.content async for event in bus.events() if isinstance(event, Added)]
    assert len(contents) == len(set(contents))
    assert set(contents) >= {str(number) for number in range(50, 100)}


def test_access_roles_hold_on_the_next_master(tmp_path: Path) -> None:
    with Watched(aclfile=str(write_access_list(tmp_path))) as watched:
        urls = {role: watched.url.replace("://", f"://{login(role)}", 1) for role in READS}
        with (
            Bus.connect(watched.url, source="owner") as owner,
            Bus.connect(urls["publisher"], source="publisher") as publisher,
            Bus.connect(urls["reader"], source="reader") as reader,
            Bus.connect(urls["projector"], source="projector") as projector,
        ):
            publisher.page().add("observation", "before")
            watched.fail_over()
            publisher.page().add("observation", "after")
            project(projector)
            assert [seen.content for seen in reader.page().list()] == ["after", "before"]
            with pytest.raises(EngineForbidden, match="reader"):
                reader.page().add("observation", "x")
            assert check(owner) == []


def test_killing_the_master_under_load_loses_no_acknowledged_write(watched: Watched, bus: Bus) -> None:
    kill_the_master_under_load(watched, bus)


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_killing_masters_repeatedly_loses_no_acknowledged_write(watched: Watched, bus: Bus) -> None:
    for _ in range(12):
        kill_the_master_under_load(watched, bus)
        eventually(watched.is_whole)


def kill_the_master_under_load(watched: Watched, bus: Bus) -> None:
    name = bus.core.log.bus
    with (
        Reading(watched.url, name) as reading,
        Load(watched.url, name, ack="replica") as load,
        Projecting(watched.url, name),
    ):
        load.wait_for(100)
        victim = watched.master
        victim.kill()
        bus.page("page-0").list()  # waits for the new master
        eventually(lambda: watched.master is not victim)
        watched.restart(victim)
        load.wait_for(100)
        acknowledged = set(load.acknowledged)
        eventually(lambda: reading.ids() >= acknowledged)
    for ids in reading.seen.values():
        assert len(ids) == len(set(ids))
    for shard in range(bus.core.log.shards):
        bus.converse(catch_up(bus.core.log, shard))
    assert check(bus, Acknowledged(event_ids=load.acknowledged)) == []


class Projecting(Threads):
    """A projector in a thread, restarted on LogRewound."""

    def __init__(self, url: str, bus: str) -> None:
        super().__init__(self._work)
        self._bus = Bus.connect(url, bus=bus, source="projector")

    def _work(self) -> None:
        with self._bus:
            while not self.stop.is_set():
                try:
                    run_projector(self._bus, self.stop)
                except LogRewound:
                    self.stop.wait(0.01)


def test_writers_do_not_notice_a_planned_failover(watched: Watched, bus: Bus) -> None:
    name = bus.core.log.bus
    with Load(watched.url, name) as load:
        load.wait_for(50)
        watched.fail_over()
        load.wait_for(50)
    assert load.troubles == set()
    assert check(bus) == []


def test_a_reader_gets_log_rewound_when_a_failover_lost_events(watched: Watched, bus: Bus) -> None:
    page = bus.page()
    page.add("observation", "on both")
    eventually(lambda: watched.replica.has_caught_up(watched.master))
    stop = threading.Event()
    events = bus.events(follow=True, stop=stop)
    assert next(events).position.seq == 1
    victim, heir = watched.master, watched.replica
    heir.pause()
    ask(victim, "CLIENT", "KILL", "TYPE", "replica")
    lost = page.add("observation", "on the old master alone, at ack=memory")
    assert next(events).position == lost.position
    victim.kill()
    heir.go_on()
    with pytest.raises(LogRewound):
        next(events)
    stop.set()
    assert page.get(lost.id) is None
    assert page.add("observation", "on the new master").position.seq == 2
    assert [event.position.seq for event in bus.events()] == [1, 2]
    watched.restart(victim)
