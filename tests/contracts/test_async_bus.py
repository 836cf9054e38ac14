"""The asyncio bus: the same results as the blocking one, and concurrent calls."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from scratchbus import AsyncBus, Event, NewObservation
from scratchbus.domain.events import Added
from scratchbus.errors import (
    BusClosed,
    Claimed,
    EngineUnreachable,
    InvalidField,
    LogRewound,
    UnknownType,
    VersionConflict,
)
from scratchbus.eventlog import tail_readers
from tests.inspection import assert_sound, forget
from tests.waiting import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture
async def open_bus(engine, bus_name) -> AsyncIterator[Callable[..., AsyncBus]]:
    opened: list[AsyncBus] = []

    def new(source: str = "tester", **settings: object) -> AsyncBus:
        mine = {"bus": bus_name, "shards": engine.shards} | settings
        opened.append(AsyncBus.connect(engine.url, source=source, **mine))
        return opened[-1]

    yield new
    for bus in opened:
        await bus.close()


@pytest.fixture
async def abus(open_bus):
    return await open_bus()


async def test_full_life_of_an_observation(abus, connect):
    page = abus.page()
    observation = await page.add("risk_alert", "x", tags=["fraud"], dedupe_key="k")
    assert (await page.add("risk_alert", "x", dedupe_key="k")).occurrences == 2
    assert await page.get(observation.id) == (await page.active())[0] == (await page.list(tags="fraud", text="X"))[0]
    claim = await page.claim(observation.id, by="executor-1")
    with pytest.raises(Claimed):
        await page.resolve(observation.id)
    assert (await page.claim(observation.id, by="executor-1", fence=claim.fence)).fence == claim.fence
    assert (await page.update(observation.id, content="y", fence=claim.fence)).content == "y"
    assert (await page.link(observation.id, "goal-1")).links == ["goal-1"]
    assert (await page.release(observation.id, fence=claim.fence)).claim is None
    assert (await page.review(observation.id)).status == "pending_review"
    assert (await page.resolve(observation.id, reason="done")).reason == "done"
    assert (await page.reopen(observation.id)).status == "active"
    await page.resolve(observation.id)
    await page.clear_resolved([observation.id])
    assert await page.get(observation.id) is None
    kinds = [event.kind for event in await page.history(observation.id)]
    assert kinds[:3] == ["added", "repeated", "claimed"]
    assert len(kinds) == 12
    assert (await page.archive((await page.add("observation", "z")).id)).status == "archived"
    assert_sound(connect())


async def test_refused_writes_raise_and_append_nothing(abus):
    page = abus.page()
    with pytest.raises(UnknownType):
        await page.add("risk_alrt", "x")
    with pytest.raises(InvalidField):
        await page.add("risk_alert", " ")
    observation = await page.add("risk_alert", "x")
    with pytest.raises(VersionConflict):
        await page.update(observation.id, content="y", expected_version=2)
    assert [event.kind async for event in abus.events()] == ["added"]


async def test_both_facades_share_one_bus(abus, connect):
    sync_page = connect().page()
    added = await abus.page().add("observation", "x", event_id="once")
    assert sync_page.get(added.id) == added
    assert sync_page.add("observation", "x", event_id="once") == added
    assert await abus.page().list() == sync_page.list()
    assert await abus.position() == connect().position()


async def test_concurrent_calls_each_happen_once(abus, connect):
    page = abus.page()
    added = await asyncio.gather(*(page.add("observation", f"{n}") for n in range(50)))
    assert sorted(one.position.seq for one in added) == list(range(1, 51))
    outcomes = await asyncio.gather(
        *(page.claim(added[0].id, by=f"executor-{n}") for n in range(20)), return_exceptions=True
    )
    assert sum(not isinstance(outcome, Exception) for outcome in outcomes) == 1
    assert {type(outcome) for outcome in outcomes if isinstance(outcome, Exception)} == {Claimed}
    assert_sound(connect())


async def test_batch_retry_returns_the_same_observations(abus):
    batch = [NewObservation(type="observation", content=f"{n}") for n in range(10)]
    first = await abus.page().add_many(batch, event_id="once")
    assert await abus.page().add_many(batch, event_id="once") == first


async def test_events_are_followed_until_stopped(abus):
    stop, seen = asyncio.Event(), []

    async def follow():
        async for event in abus.events(follow=True, stop=stop):
            seen.append(event.content)
            if len(seen) == 3:
                stop.set()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(follow())
        for n in range(3):
            await abus.page().add("observation", f"{n}")
    assert seen == ["0", "1", "2"]


async def test_cancelled_wait_for_an_event_loses_none(abus):
    async def publish():
        for n in range(50):
            await abus.page(f"p{n % 7}").add("observation", f"{n}")
            await asyncio.sleep(0.001)

    events, gave_up = abus.events(follow=True), 0
    seen: list[Event] = []
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.02)
        group.create_task(publish())
        while len(seen) < 50:
            try:
                seen.append(await asyncio.wait_for(anext(events), random.uniform(0, 0.004)))
            except TimeoutError:
                gave_up += 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.02)
    assert gave_up
    assert sorted(int(cast(Added, event).content) for event in seen) == list(range(50))
    for shard in {event.position.shard for event in seen}:
        seqs = [event.position.seq for event in seen if event.position.shard == shard]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_tasks_sharing_an_iterator_split_its_events(abus):
    events, stop = abus.events(follow=True, stop=asyncio.Event()), 40
    seen: list[str] = []

    async def take():
        while len(seen) < stop:
            seen.append((await anext(events)).content)

    async with asyncio.timeout(PATIENCE):
        takers = [asyncio.create_task(take()) for _ in range(3)]
        for n in range(stop):
            await abus.page().add("observation", f"{n}")
        await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED)
        for taker in takers:
            taker.cancel()
        await asyncio.gather(*takers, return_exceptions=True)
    assert seen == [f"{n}" for n in range(stop)]


async def test_ended_event_iterator_stays_ended(abus):
    for events in (abus.events(), abus.events(follow=True)):
        await abus.page().add("observation", "x")
        assert (await anext(events)).kind == "added"
        await events.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    events = abus.events()
    assert len([event async for event in events]) == 2
    await abus.page().add("observation", "later")
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_bus_works_after_a_cancelled_follower(abus):
    seen = asyncio.Queue[Event]()

    async def follow():
        async for event in abus.events(follow=True):
            seen.put_nowait(event)

    async with asyncio.timeout(PATIENCE):
        task = asyncio.create_task(follow())
        first = await abus.page().add("observation", "first")
        assert (await seen.get()).subject == first.id
        feed = abus.feeds.feed(first.position.shard)
        while not feed.followers:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert feed.followers == 0
        second = await abus.page().add("observation", "second")
        assert [each.id for each in await abus.page().list()] == [second.id, first.id]
        again = abus.events(follow=True)
        assert [(await anext(again)).subject for _ in range(2)] == [first.id, second.id]
        third = await abus.page().add("observation", "third")
        assert (await anext(again)).subject == third.id
    assert seen.empty()


async def test_cancelled_call_does_not_affect_the_next(abus):
    page = abus.page()
    await page.add("observation", "first")
    for _ in range(20):
        task = asyncio.create_task(page.list())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert [one.content for one in await page.list()] == ["first"]


async def test_cancelled_close_closes_the_connections(abus, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(abus.keeper, "close", lambda: asyncio.sleep(60))
        closing = asyncio.create_task(abus.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    with pytest.raises(BusClosed):
        await abus.page().list()


async def test_follower_of_a_flushed_log_raises(abus, connect, monkeypatch):
    monkeypatch.setattr(tail_readers, "MAX_BLOCK_MS", 50)
    bus, events = connect(), abus.events(follow=True, stop=asyncio.Event())
    await abus.page().add("observation", "x")
    assert (await anext(events)).kind == "added"
    forget(bus)
    with pytest.raises(LogRewound):
        await anext(events)


async def test_types_status_and_wait_for_events(abus, open_bus, tmp_path):
    file = tmp_path / "types.yaml"
    file.write_text("types:\n  build_failed: {}\n")
    other = await open_bus("other")
    ends = dict(enumerate((await abus.position()).shards))
    assert await abus.push_types(file) is True
    assert await abus.wait_for_events(ends, 5) is True
    assert await other.refresh_types() is True
    assert list(other.types.types) == list(abus.types.types) == ["build_failed"]
    assert (await abus.status()).registry_version == 1
    assert abus.settings.source == "tester"


async def test_bus_opens_by_await_async_with_or_first_use(open_bus):
    async with open_bus() as entered:
        await entered.page().add("observation", "x")
    assert len(await (await open_bus()).page().list()) == 1
    assert len(await open_bus().page().list()) == 1


async def test_missing_engine_raises_engine_unreachable(tmp_path):
    with pytest.raises(EngineUnreachable):
        await AsyncBus.connect(f"unix://{tmp_path}/no.sock")


async def test_a_failed_wait_for_events_leaves_no_follower(abus):
    events = abus.events(follow=True)
    feeds = [abus.feeds.feed(shard) for shard in range(abus.core.log.shards)]
    while not all(feed.has_begun for feed in feeds):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for _ in range(2):
        feeds[-1].trouble = LogRewound("another log")
        with pytest.raises(LogRewound):
            await anext(events)
    assert [feed.followers for feed in feeds] == [0] * len(feeds)
