"""Changes on healthy shards while the server of shard 0, which has the registry, is down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.errors import InvalidField, InvalidTransition
from scratchbus.readmodel import scope
from tests.faults.clusters import Cluster
from tests.faults.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.real

Outage = Callable[[Server], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, has_replicas=False, **{"cluster-require-full-coverage": "no"}) as cluster:
        yield cluster


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.go_on()


@contextmanager
def killed(server: Server) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


@pytest.fixture(params=[stopped, killed])
def outage(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Outage]:
    yield request.param
    eventually(cluster.is_whole)


def healthy_page(cluster: Cluster, bus: Bus) -> tuple[Server, str]:
    """Return the server of shard 0, and the name of a page on the other one."""
    down = cluster.master_of(cluster.slot_of(bus, "_bus"))
    names = (f"page-{number}" for number in range(100))
    return down, next(name for name in names if cluster.master_of(cluster.slot_of(bus, name)) is not down)


def test_changes_of_a_healthy_shard_are_allowed_and_refused_at_once(
    cluster: Cluster, bus_name: str, outage: Outage
) -> None:
    with Bus.connect(cluster.url, bus=bus_name, source="tester", shards=16) as bus:
        down, name = healthy_page(cluster, bus)
        page = bus.page(name)
        one, other = page.add("observation", "one"), page.add("observation", "other")
        with outage(down):
            started_at = time.monotonic()
            assert page.resolve(one.id).status == "resolved"
            with pytest.raises(InvalidField, match="'done' is not a status of lifecycle 'default'"):
                page.update(other.id, status="done")
            with pytest.raises(InvalidTransition, match="from active it can become: archived, pending_review"):
                page.update(other.id, status="active")
            with pytest.raises(InvalidTransition):
                page.clear_resolved([other.id])
            page.clear_resolved([one.id])
            with pytest.raises(InvalidField, match="'done' is not a status of any type"):
                page.list(status="done")
            assert time.monotonic() - started_at < 8


async def test_changes_of_a_task_are_allowed_and_refused_at_once(
    cluster: Cluster, bus_name: str, outage: Outage
) -> None:
    with Bus.connect(cluster.url, bus=bus_name, source="tester", shards=16) as blocking:
        down, name = healthy_page(cluster, blocking)
    async with AsyncBus.connect(cluster.url, bus=bus_name, source="tester", shards=16) as bus:
        page = bus.page(name)
        one, other = await page.add("observation", "one"), await page.add("observation", "other")
        with outage(down):
            started_at = time.monotonic()
            assert (await page.resolve(one.id)).status == "resolved"
            with pytest.raises(InvalidField, match="'done' is not a status of lifecycle 'default'"):
                await page.update(other.id, status="done")
            with pytest.raises(InvalidTransition, match="from active it can become: archived, pending_review"):
                await page.update(other.id, status="active")
            await page.clear_resolved([one.id])
            assert time.monotonic() - started_at < 8


def test_known_types_are_added_to_a_healthy_shard(
    cluster: Cluster, bus_name: str, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bus.connect(cluster.url, bus=bus_name, source="tester", shards=16) as bus:
        down, name = healthy_page(cluster, bus)
        page = bus.page(name)
        monkeypatch.setattr(scope, "REGISTRY_AGE", 0)  # each addition looks for newer types
        with outage(down):
            started_at = time.monotonic()
            added = page.add("observation", "one")
            assert page.claim_next(types=["observation"], ttl="1m").id == added.id
            assert time.monotonic() - started_at < 8


async def test_known_types_are_added_to_a_healthy_shard_by_a_task(
    cluster: Cluster, bus_name: str, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bus.connect(cluster.url, bus=bus_name, source="tester", shards=16) as blocking:
        down, name = healthy_page(cluster, blocking)
    async with AsyncBus.connect(cluster.url, bus=bus_name, source="tester", shards=16) as bus:
        page = bus.page(name)
        monkeypatch.setattr(scope, "REGISTRY_AGE", 0)
        with outage(down):
            started_at = time.monotonic()
            added = await page.add("observation", "one")
            assert (await page.claim_next(types=["observation"], ttl="1m")).id == added.id
            assert time.monotonic() - started_at < 8


@pytest.mark.slow
def test_a_claim_is_renewed_beside_a_view_of_its_page(cluster: Cluster, bus_name: str) -> None:
    with Bus.connect(cluster.url, bus=bus_name, source="tester", shards=16) as bus:
        down, name = healthy_page(cluster, bus)
        bus.page(name).add("observation", "one")
        with bus.view(name), bus.work("w", pages=[name], ttl="8s") as jobs:
            job = next(iter(jobs))
            with stopped(down):
                lapsed_at = time.monotonic() + 20
                eventually(lambda: job.is_lost or time.monotonic() > lapsed_at, within=30)
            assert job.resolve().status == "resolved"
