"""Concurrent additions of tasks share connections and script calls; each keeps the promises of a single one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus, NewObservation, Observation
from scratchbus.errors import EngineUnreachable, NotReplicated, PageFull, UnknownType
from scratchbus.eventlog.raw_entries import entry_fields
from tests.faults.checker import Acknowledged, check
from tests.faults.forwarder import Cut
from tests.faults.proxy import Proxy
from tests.faults.servers import DURABLE, Server
from tests.inspection import entries

pytestmark = pytest.mark.real

ROOM = 10_000
TASKS = 40


@asynccontextmanager
async def opened(url: str, bus: str, **given: Any) -> AsyncIterator[AsyncBus]:
    settings: dict[str, Any] = {"source": "tester", "max_observations": ROOM} | given
    async with await AsyncBus.connect(url, bus=bus, **settings) as opened:
        await opened.page().add("observation", "the first write needs more requests than the others")
        yield opened


async def add_all(bus: AsyncBus, count: int = TASKS, page: str = "main", first: int = 0) -> list[Any]:
    """Add observations concurrently; return each one or its error."""
    adding = (bus.page(page).add("observation", f"mark-{number}-") for number in range(first, first + count))
    return await asyncio.gather(*adding, return_exceptions=True)


def marks(bus: Bus) -> Counter[bytes]:
    """Return how often each marked observation was added."""
    found = (entry_fields(entry)[b"event"] for entry in entries(bus, 0))
    return Counter(body[body.index(b"mark-") :].split(b"-")[1] for body in found if b"mark-" in body)


def assert_each_once(bus: Bus, added: list[Any]) -> None:
    said = [f"mark-{number}-" for number, each in enumerate(added) if isinstance(each, Observation)]
    assert check(bus, Acknowledged(marks=said)) == []
    assert set(marks(bus).values()) == {1}


def calls(server: Server) -> int:
    """Return the number of writing script calls."""
    with server.client() as client:
        stats: dict[str, Any] = client.info("commandstats")
        return int(stats["cmdstat_evalsha"]["calls"])


async def test_concurrent_additions_share_calls_but_not_batches(shared_server: Server, bus_name: str) -> None:
    async with opened(shared_server.url, bus_name) as bus:
        before = calls(shared_server)
        added = await add_all(bus)
        assert calls(shared_server) - before <= TASKS / 4
    assert [each.content for each in added] == [f"mark-{number}-" for number in range(TASKS)]
    with Bus.connect(shared_server.url, bus=bus_name) as other:
        assert_each_once(other, added)
        rows = {entry[0].decode(): entry_fields(entry) for entry in entries(other, 0)}
        for each in added:
            row = rows[each.position.stream_id]
            assert (row[b"subject"].decode(), row[b"batch"]) == (each.id, b"1/1")
        assert {each.id: each for each in other.page().list(limit=ROOM)}.items() >= {
            each.id: each for each in added
        }.items()


async def test_the_flushed_group_script_is_loaded_again(shared_server: Server, bus_name: str) -> None:
    async with opened(shared_server.url, bus_name) as bus:
        with shared_server.client() as client:
            client.script_flush()
            added = await add_all(bus)
            before = client.info("commandstats")
            more = await add_all(bus, first=TASKS)
            now = client.info("commandstats")
        assert all(isinstance(each, Observation) for each in (*added, *more))
        assert now["cmdstat_eval"] == before["cmdstat_eval"]
        assert now["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"] <= TASKS / 4


async def test_each_caller_keeps_its_order(shared_server: Server, bus_name: str) -> None:
    async def add_some(bus: AsyncBus, caller: int) -> list[int]:
        page = bus.page(f"page-{caller % 3}")
        return [(await page.add("observation", f"{caller}: {number}")).position.seq for number in range(10)]

    async with opened(shared_server.url, bus_name) as bus:
        positions = await asyncio.gather(*(add_some(bus, caller) for caller in range(20)))
    assert all(each == sorted(each) for each in positions)
    assert sorted(seq for each in positions for seq in each) == list(range(2, 202))


async def test_a_refusal_affects_one_caller_only(shared_server: Server, bus_name: str) -> None:
    batch = [NewObservation(type="observation", content=f"of a batch {number}") for number in range(5)]
    async with opened(shared_server.url, bus_name) as bus:
        page = bus.page()
        again = await page.add("observation", "x", event_id="once", dedupe_key="key")
        results = await asyncio.gather(
            add_all(bus),
            page.add_many(batch),
            page.add("observation", "x", event_id="once", dedupe_key="key"),
            page.add("observation", "y", dedupe_key="key"),
            page.add("observatoin", "z"),
            return_exceptions=True,
        )
    added, many, retried, repeated, refused = results
    assert isinstance(refused, UnknownType)
    assert (retried, repeated.id, repeated.occurrences) == (again, again.id, 2)
    assert [each.position.seq - many[0].position.seq for each in many] == list(range(5))
    with Bus.connect(shared_server.url, bus=bus_name) as other:
        assert_each_once(other, added)


@pytest.mark.parametrize("on_full", ["refuse", "displace"])
async def test_grouped_additions_respect_the_room_of_a_page(shared_server: Server, bus_name: str, on_full: str) -> None:
    async with opened(shared_server.url, bus_name, max_observations=20, on_full=on_full) as bus:
        added = await add_all(bus)
        kinds = Counter([event.kind async for event in bus.events(pages=["main"])])
        assert len(await bus.page().active()) == 20
    refused = [each for each in added if isinstance(each, PageFull)]
    assert len(refused) == (TASKS - 19 if on_full == "refuse" else 0)
    assert kinds["status_changed"] == (TASKS - 19 if on_full == "displace" else 0)
    with Bus.connect(shared_server.url, bus=bus_name) as other:
        assert_each_once(other, added)


@pytest.mark.parametrize("kind", ["request", "reply"])
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_lost_group_call_adds_each_observation_once(
    shared_server: Server, bus_name: str, kind: Cut, number: int
) -> None:
    with Proxy(shared_server) as proxy:
        async with opened(proxy.url, bus_name) as bus:
            proxy.arm(kind, number)
            added = await add_all(bus)
            assert proxy.cuts == 1
    assert all(isinstance(each, Observation) for each in added), added
    with Bus.connect(shared_server.url, bus=bus_name) as other:
        assert_each_once(other, added)
        assert len(marks(other)) == TASKS


async def test_a_group_call_arriving_after_its_retry_changes_nothing(shared_server: Server, bus_name: str) -> None:
    with Proxy(shared_server) as proxy:
        async with opened(proxy.url, bus_name) as bus:
            proxy.arm("request", 2, keep=True)
            added = await add_all(bus)
            proxy.deliver()
    assert all(isinstance(each, Observation) for each in added), added
    with Bus.connect(shared_server.url, bus=bus_name) as other:
        assert_each_once(other, added)
        assert len(marks(other)) == TASKS


async def test_cancelled_tasks_do_not_affect_other_additions(shared_server: Server, bus_name: str) -> None:
    async with opened(shared_server.url, bus_name) as bus:
        for turns in range(6):
            tasks = [
                asyncio.create_task(bus.page().add("observation", f"mark-{turns * TASKS + number}-"))
                for number in range(TASKS)
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            for number, each in enumerate(done):
                if number % 3:
                    assert isinstance(each, Observation)
                    assert each.content == f"mark-{turns * TASKS + number}-"
    with Bus.connect(shared_server.url, bus=bus_name) as other:
        assert check(other) == []
        assert set(marks(other).values()) == {1}


async def test_killing_the_engine_loses_no_acknowledged_addition(
    new_server: Callable[..., Server], bus_name: str
) -> None:
    server = new_server(**DURABLE)
    added: list[Any] = []

    async def add_on(bus: AsyncBus, caller: int) -> None:
        for number in range(30):
            with_mark = await bus.page().add("observation", f"mark-{1000 * caller + number}-")
            added.append(with_mark)

    async with opened(server.url, bus_name) as bus:
        adding = asyncio.gather(*(add_on(bus, caller) for caller in range(20)))
        for wanted in (100, 300):
            while len(added) < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await adding
    with Bus.connect(server.url, bus=bus_name) as other:
        assert check(other, Acknowledged(marks=[each.content for each in added])) == []
        assert set(marks(other).values()) == {1}
        assert len(marks(other)) == len(added) == 600


@pytest.mark.slow
@pytest.mark.alone
async def test_waiting_for_replicas_does_not_delay_reads(shared_server: Server, bus_name: str) -> None:
    async with opened(shared_server.url, bus_name) as bus:
        settings: dict[str, Any] = {
            "ack": "replica",
            "replicas": 1,
            "socket_timeout": 2.0,
        }  # the wait for replicas takes half of that
        async with await AsyncBus.connect(shared_server.url, bus=bus_name, source="other", **settings) as other:
            with pytest.raises(NotReplicated):
                await other.page().add("observation", "the first write waits before it is sent as well")
            begun = time.monotonic()
            writing = asyncio.create_task(add_all(other, 10))
            while not writing.done() and await bus.page().count(text="mark-") < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert len(await other.page().list(text="mark-")) == 10
            assert not writing.done()
            assert time.monotonic() - begun < 0.9
            refused = await writing
            assert time.monotonic() - begun < 5
    assert [type(each) for each in refused] == [NotReplicated] * 10
    assert len({each.event_id for each in refused}) == 10


@pytest.mark.alone
async def test_a_hanging_engine_fails_all_additions_together(new_server: Callable[..., Server], bus_name: str) -> None:
    server = new_server()
    async with opened(server.url, bus_name, socket_timeout=1.0) as bus:
        bus.core.log.patience = 0.5
        server.pause()
        begun = time.monotonic()
        refused = await add_all(bus)
        took = time.monotonic() - begun
        server.go_on()
        assert [type(each) for each in refused] == [EngineUnreachable] * TASKS
        assert took < 5
        assert isinstance(await bus.page().add("observation", "again"), Observation)
