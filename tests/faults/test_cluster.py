"""A bus on a real cluster of three masters and three replicas, also while nodes fail and slots move."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scratchbus import AsyncBus, AsyncPage, Bus, NewObservation
from scratchbus.domain.events import Added
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import (
    Claimed,
    EngineMisconfigured,
    EngineUnreachable,
    InvalidURL,
    NotReplicated,
    ShardsMismatch,
    VersionConflict,
)
from scratchbus.eventlog.keys import PageKeys
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.projector import run_projector
from scratchbus.scheduling.expiry import run_expirer
from tests.faults.checker import Acknowledged, check
from tests.faults.clusters import Cluster, Move, ask, id_of
from tests.faults.loads import Load, Reading
from tests.faults.servers import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.real

PAGES = [f"page-{number}" for number in range(20)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def bus(cluster: Cluster, bus_name: str) -> Iterator[Bus]:
    with Bus.connect(cluster.url, bus=bus_name, source="tester", ack="replica") as bus:
        yield bus
        project(bus)
        assert check(bus) == []


def project(bus: Bus) -> None:
    for shard in range(bus.core.log.shards):
        bus.converse(catch_up(bus.core.log, shard))


# -- the same as on one server ---------------------------------------------------------------------------------------


def test_a_new_bus_has_sixteen_shards_on_all_masters(cluster: Cluster, bus: Bus) -> None:
    assert bus.core.log.shards == 16
    assert {cluster.master_of(cluster.slot_of(bus, page)).port for page in PAGES} == {
        server.port for server in cluster.servers if ask(server, "ROLE")[0] == b"master"
    }
    with pytest.raises(ShardsMismatch):
        Bus.connect(cluster.url, bus=bus.core.log.bus, shards=4)


def test_every_operation_works_on_every_page(bus: Bus) -> None:
    for name in PAGES:
        page = bus.page(name)
        first, second = page.add_many([NewObservation(type="risk_alert", content=word) for word in ("one", "two")])
        third = page.add("observation", "three", dedupe_key="k", tags=["t"])
        assert page.add("observation", "three", dedupe_key="k").occurrences == 2
        assert [seen.id for seen in page.active()] == [second.id, first.id, third.id]
        assert [seen.id for seen in page.list(tags="t")] == [third.id]
        claim = page.claim(first.id, by="me", ttl="30s")
        with pytest.raises(Claimed):
            page.resolve(first.id)
        assert page.resolve(first.id, fence=claim.fence).status == "resolved"
        page.link(second.id, action="goal-1")
        with pytest.raises(VersionConflict):
            page.update(second.id, content="2", expected_version=7)
        page.clear_resolved([first.id])
        assert page.get(first.id) is None
        assert [event.kind for event in page.history(first.id)] == ["added", "claimed", "status_changed", "cleared"]
    status = bus.status()
    assert status.risks == []
    assert (status.memory_bytes or 0) > 3 * 1_000_000, "the sum over all masters"
    assert [page.open for page in status.pages] == [2] * len(PAGES)
    assert sum(shard.events for shard in status.shards) == len(list(bus.events())) == 8 * len(PAGES)


async def test_adding_following_and_reading_work_for_asyncio(cluster: Cluster, bus_name: str) -> None:
    async with AsyncBus.connect(cluster.url, bus=bus_name, source="tester", ack="replica") as bus:
        seen, start = [], await bus.position()
        for name in PAGES:
            await bus.page(name).add("observation", name)
        stop = asyncio.Event()
        async for event in bus.events(follow=True, stop=stop):
            seen.append(event.page)
            if len(seen) == len(PAGES):
                await bus.page(PAGES[7]).add("observation", "while it is followed")
            elif len(seen) > len(PAGES):
                stop.set()
        assert sorted(seen) == sorted([*PAGES, PAGES[7]])
        assert len([event async for event in bus.events(start)]) == len(PAGES) + 1
        assert [(await bus.page(name).active())[0].content for name in PAGES[:7]] == PAGES[:7]


def test_pushed_types_reach_other_clients(cluster: Cluster, bus: Bus) -> None:
    with Bus.connect(cluster.url, bus=bus.core.log.bus, source="other") as other:
        text = bus.types.text + "\n  weather:\n    description: How it is outside.\n    priority: 5\n"
        bus.push_types(parse_registry(text, "types.yaml"))
        assert other.page("page-5").add("weather", "Rain.").priority == 5


def test_a_follower_gets_additions_of_any_shard_at_once(bus: Bus) -> None:
    stop = threading.Event()
    events = bus.events(bus.position(), follow=True, stop=stop)
    for round in range(3):
        for name in PAGES:
            added = bus.page(name).add("observation", f"{round}")
            assert next(events).position == added.position
    stop.set()
    assert list(events) == []


def test_events_after_a_position_skip_none(bus: Bus) -> None:
    added = [bus.page(name).add("observation", name) for name in PAGES]
    middle = added[11]
    seen = {event.subject for event in bus.events(middle.position)}
    assert seen >= {each.id for each in added[12:]}
    assert middle.id not in seen


def test_a_view_of_any_page_is_live(bus: Bus) -> None:
    for name in PAGES:
        with bus.view(name) as view:
            added = bus.page(name).add("observation", name)
            view.wait_for(added.position)
            assert view.active() == [added]


def test_a_subscription_delivers_all_shards_in_page_order(bus: Bus) -> None:
    for number in range(3):
        for name in PAGES:
            bus.page(name).add("observation", f"{number}")
    got: dict[str, list[str]] = {name: [] for name in PAGES}
    stop = threading.Event()
    with bus.subscribe("all", after="0-0", stop=stop) as deliveries:
        for delivery in deliveries:
            got[delivery.event.page].append(getattr(delivery.event, "content", ""))
            delivery.ack()
            if sum(map(len, got.values())) == 3 * len(PAGES):
                break
    assert got == {name: ["0", "1", "2"] for name in PAGES}


@pytest.mark.parametrize("run", [run_projector, run_expirer])
def test_daemons_serve_all_shards(cluster: Cluster, bus: Bus, run: Callable[[Bus, threading.Event], None]) -> None:
    stop = threading.Event()
    with Bus.connect(cluster.url, bus=bus.core.log.bus, source="daemon", sweep_interval=0.1) as its:
        daemon = threading.Thread(target=run, args=(its, stop))
        daemon.start()
        try:
            short = [bus.page(name).add("observation", name, ttl=0.2) for name in PAGES]
            if run is run_expirer:
                eventually(lambda: len(list(bus.events(kinds="status_changed"))) == len(short))
            else:
                eventually(lambda: all(shard.lag == 0 for shard in bus.status().shards))
        finally:
            stop.set()
            daemon.join(30)
    assert not daemon.is_alive()


# -- misconfiguration ------------------------------------------------------------------------------------------------


def test_ack_fsync_needs_every_master_to_sync(cluster: Cluster, bus_name: str) -> None:
    masters = [server for server in cluster.servers if ask(server, "ROLE")[0] == b"master"]
    try:
        for master in masters[1:]:
            ask(master, "CONFIG", "SET", "appendfsync", "always")
        with pytest.raises(EngineMisconfigured, match="appendfsync always"):
            Bus.connect(cluster.url, bus=bus_name, ack="fsync")
        ask(masters[0], "CONFIG", "SET", "appendfsync", "always")
        Bus.connect(cluster.url, bus=bus_name, ack="fsync").close()
    finally:
        for master in masters:
            ask(master, "CONFIG", "SET", "appendfsync", "everysec")


@pytest.mark.slow
def test_too_few_replicas_warn_on_connect_and_fail_every_write(
    cluster: Cluster, bus_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Bus.connect(cluster.url, bus=bus_name, source="t", ack="replica", replicas=2, socket_timeout="2s") as bus:
        for name in ("page-1", "page-2", "page-3"):
            with pytest.raises(NotReplicated) as caught:
                bus.page(name).add("observation", "x")
            assert (caught.value.copies, caught.value.wanted) == (1, 2)
        assert "has 1 replicas, not 2" in bus.status().risks[0]
    assert capsys.readouterr().err.count("has 1 replicas, not 2") == 2, (
        "one warning for shard 0, and one for the others"
    )


def test_the_url_of_one_cluster_node_is_refused(cluster: Cluster, bus_name: str) -> None:
    with pytest.raises(EngineMisconfigured, match=r"write redis\+cluster://"):  # noqa: PT012
        for server in cluster.servers:
            Bus.connect(server.tcp_url, bus=bus_name)


def test_a_cluster_url_of_a_single_server_is_refused(new_server) -> None:
    server = new_server(tcp=True)
    with pytest.raises(EngineMisconfigured, match="is not a cluster; write redis://"):
        Bus.connect(f"redis+cluster://127.0.0.1:{server.port}")


@pytest.mark.parametrize("end", ["?db=3", "/3"])
def test_a_cluster_has_one_database(cluster: Cluster, bus_name: str, end: str) -> None:
    scheme = "redis+cluster" if end == "?db=3" else "redis"
    with pytest.raises(EngineMisconfigured, match=r"has no such database .* in the URL, or none"):
        Bus.connect(f"{scheme}://127.0.0.1:{cluster.servers[0].port}{end}", bus=bus_name)


def test_an_absent_cluster_is_unreachable() -> None:
    with pytest.raises(EngineUnreachable, match="does not answer") as caught:
        Bus.connect(f"redis+cluster://me:s3cr3t@127.0.0.1:{free_port()},127.0.0.1:{free_port()}")
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis+cluster://me:s3cr3t@host:7000/1", "a cluster has no databases"),
        ("redis+cluster://", "names no host"),
        ("redis+cluster://me:s3cr3t@host:seven", "is not an engine URL"),
        ("redis+cluster://me:s3cr3t@a,b?ssl_ca_certs=/nowhere", "does not exist"),
        ("redis+sentinel://me:s3cr3t@a,b?sentinel_password=s3cr3t", "names no master"),
        ("redis+ring://me:s3cr3t@a", "is not an engine URL"),
        ("redis://me:s3cr3t@127.0.0.1:1/main", "a database is a number"),
        ("redis://me:s3cr3t@127.0.0.1:1/1/2?db=3", "a database is a number"),
        ("redis://me:12/s3cr3t@127.0.0.1", "a database is a number"),
    ],
)
def test_an_invalid_url_is_explained_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(InvalidURL, match=reason) as caught:
        Bus.connect(url)
    assert "s3cr3t" not in str(caught.value)


# -- moved slots and failovers ---------------------------------------------------------------------------------------


def test_scripts_wait_while_a_slot_is_half_moved(cluster: Cluster, bus: Bus) -> None:
    log = bus.core.log
    names = ["main", next(name for name in map(str, range(99)) if log.shard(name) == log.shard("main"))]
    added = [bus.page(name).add("observation", name) for name in names]
    project(bus)
    for each in added:
        bus.page(each.page).update(each.id, content="not folded yet")
    last = PageKeys(log.keys(log.shard("main")), names[1]).positions  # a commit writes it last
    with Move(cluster, cluster.slot_of(bus)) as move:
        move.keys(lambda key: key == last)
        working = [
            threading.Thread(target=bus.page().add, args=("observation", "meanwhile")),
            threading.Thread(target=project, args=(bus,)),
        ]
        for thread in working:
            thread.start()
        eventually(lambda: move.refusals() >= 4)
        assert all(thread.is_alive() for thread in working)
        move.keys(lambda key: True)
        assert len(list(bus.events())) == 4  # commands with one key are served
    for thread in working:
        thread.join(30)
    assert [seen.content for seen in bus.page().list()] == ["meanwhile", "not folded yet"]
    project(bus)
    assert check(bus) == []


@pytest.mark.slow
def test_moving_slots_under_load_loses_and_duplicates_nothing(cluster: Cluster, bus: Bus) -> None:
    name = bus.core.log.bus
    with Reading(cluster.url, name) as reading, Load(cluster.url, name, ack="replica") as load:
        load.wait_for(60)
        for page in ("page-0", "page-1", "page-2"):
            with Move(cluster, cluster.slot_of(bus, page)) as move:
                move.keys(lambda key: True)
            load.wait_for(60)
        eventually(lambda: reading.ids() >= set(load.acknowledged[:200]))
    assert load.troubles == set()
    project(bus)
    assert check(bus, Acknowledged(event_ids=load.acknowledged)) == []


async def test_grouped_additions_follow_a_moved_slot(cluster: Cluster, bus: Bus) -> None:
    done: list[str] = []
    moved: list[str] = []

    def move_all(page: str) -> None:
        with Move(cluster, cluster.slot_of(bus, page)) as move:
            move.keys(lambda key: True)
        moved.append(page)

    async def add_on(page: AsyncPage, task: int) -> None:
        while len(done) < 1_000 or len(moved) < 2:
            await page.add("observation", f"mark-{task}-{len(done)}-")
            done.append(page.name)

    settings: dict[str, Any] = {"bus": bus.core.log.bus, "source": "tester", "max_observations": 100_000}
    async with AsyncBus.connect(cluster.url, **settings) as other, asyncio.TaskGroup() as tasks:
        for task in range(40):
            tasks.create_task(add_on(other.page(f"page-{task % 2}"), task))
        await asyncio.to_thread(eventually, lambda: len(done) >= 100)
        for page in ("page-0", "page-1"):
            await asyncio.to_thread(move_all, page)
    project(bus)
    assert check(bus) == []
    contents = [event.content for event in bus.events() if isinstance(event, Added)]
    assert len(contents) == len(set(contents)) == len(done)


def test_writers_follow_an_atomically_migrated_slot(cluster: Cluster, bus: Bus) -> None:
    slot = cluster.slot_of(bus, "page-0")
    with Load(cluster.url, bus.core.log.bus, ack="replica") as load:
        load.wait_for(60)
        source = cluster.master_of(slot)
        target = next(cluster.master_of(other) for other in (0, 8000, 16_000) if cluster.master_of(other) is not source)
        ask(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", id_of(target))
        eventually(lambda: cluster.master_of(slot) is target)
        load.wait_for(60)
    assert load.troubles == set()
    project(bus)
    assert check(bus, Acknowledged(event_ids=load.acknowledged)) == []


@pytest.mark.slow
def test_killing_a_master_under_load_loses_no_acknowledged_write(cluster: Cluster, bus: Bus) -> None:
    kill_a_master_under_load(cluster, bus)


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_killing_masters_repeatedly_loses_no_acknowledged_write(cluster: Cluster, bus: Bus) -> None:
    for _ in range(12):
        kill_a_master_under_load(cluster, bus)


def kill_a_master_under_load(cluster: Cluster, bus: Bus) -> None:
    name, slot = bus.core.log.bus, cluster.slot_of(bus, "page-0")
    with Reading(cluster.url, name) as reading, Load(cluster.url, name, ack="replica") as load:
        load.wait_for(100)
        victim = cluster.master_of(slot)
        with cluster.killing(victim):
            eventually(lambda: cluster.master_of(slot) is not victim)
            bus.page("page-0").list()  # reads work as soon as the replica has taken over
        load.wait_for(100)
        acknowledged = set(load.acknowledged)
        eventually(lambda: reading.ids() >= acknowledged)
    for ids in reading.seen.values():
        assert len(ids) == len(set(ids))
    project(bus)
    assert check(bus, Acknowledged(event_ids=load.acknowledged)) == []
