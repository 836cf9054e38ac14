"""Live views under asyncio."""

import asyncio
from contextlib import suppress

import pytest

from scratchbus import AsyncBus
from scratchbus.domain.position import Position
from scratchbus.errors import Behind, BusClosed, ViewClosed
from scratchbus.eventlog import tail_readers
from scratchbus.views.live_page import Change
from tests.inspection import forget
from tests.live_and_past_pages import count_folds
from tests.waiting import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _short_block(monkeypatch):
    monkeypatch.setattr(tail_readers, "MAX_BLOCK_MS", 50)


@pytest.fixture
async def abus(engine, bus_name):
    async with AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards) as bus:
        yield bus


def contents(observations):
    return [one.content for one in observations]


async def test_view_reads_match_the_page(abus):
    page = abus.page()
    first = await page.add("risk_alert", "first", tags=["x"])
    async with abus.view() as view:
        assert view.active() == [first]
        second = await page.add("observation", "second", tags=["x"])
        await view.wait_for(second)
        resolved = await page.resolve(first.id)
        await view.wait_for(await abus.position())
        assert view.active() == await page.active() == [second]
        assert view.list(tags="x") == await page.list(tags="x") == [second, resolved]
        assert view.get(first.id) == resolved
        assert (view.position, view.is_live, view.trouble) == (resolved.position, True, None)
        with pytest.raises(Behind):
            await view.wait_for(Position(resolved.ms, resolved.seq + 1, resolved.shard), timeout="20ms")
    with pytest.raises(ViewClosed):
        view.active()


async def test_changes_arrive_in_order_and_end_with_the_view(abus):
    stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE):
        async with abus.view() as view:
            changes, stopped = view.changes(), view.changes(stop)
            waiting = asyncio.ensure_future(anext(changes))
            for n in range(3):
                await abus.page().add("observation", f"{n}")
            seen = [await waiting, await anext(changes), await anext(changes)]
            stop.set()
            assert [change async for change in stopped] == []
        assert [change async for change in changes] == []
    assert contents(change.after for change in seen) == ["0", "1", "2"]


async def test_cancelled_wait_for_a_change_loses_none(abus):
    async with abus.view() as view, asyncio.timeout(PATIENCE):
        changes = view.changes()
        seen: list[Change] = []
        publishing = asyncio.create_task(publish(abus.page(), 30))
        while len(seen) < 30:
            with suppress(TimeoutError):
                seen.append(await asyncio.wait_for(anext(changes), 0.001))
        await publishing
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(changes), 0.02)
    assert contents(change.after for change in seen) == [f"{n}" for n in range(30)]


async def publish(page, count):
    for n in range(count):
        await page.add("observation", f"{n}")
        await asyncio.sleep(0.002)


async def test_closed_changes_iterator_ends(abus):
    async with abus.view() as view, asyncio.timeout(PATIENCE):
        changes = view.changes()
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await changes.aclose()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_views_of_one_page_share_its_fold(abus, monkeypatch):
    folded = count_folds(monkeypatch)
    views = [abus.view() for _ in range(20)]
    await asyncio.gather(*(view.__aenter__() for view in views))
    added = await abus.page().add("observation", "x")
    for view in views:
        await view.wait_for(added)
        assert view.active() == [added]
    assert len(folded) == 1
    for view in views:
        await view.close()


async def test_a_view_entered_by_two_tasks_at_once_stops_following_when_it_is_closed(abus):
    """Both find it closed, and start it; the page has one user."""
    view = abus.view()
    await asyncio.gather(view.__aenter__(), view.__aenter__())
    other = abus.view()
    async with other:
        assert other._live is view._live
    live = view._live
    await view.close()
    async with abus.view() as later:
        assert later._live is not live


async def test_view_resyncs_after_a_flush(abus, connect):
    bus = connect()
    async with abus.view() as view:
        await view.wait_for(await abus.page().add("observation", "old"))
        changes = view.changes()
        forget(bus)
        await abus.page().add("observation", "new")
        async with asyncio.timeout(PATIENCE):
            while not (await anext(changes)).is_resync:
                pass
        assert contents(view.active()) == ["new"]


async def test_view_of_a_closed_bus_is_closed(engine, bus_name):
    bus = AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards)
    async with bus.view() as view:
        await bus.close()
        with pytest.raises(BusClosed):
            view.active()
        with pytest.raises(BusClosed):
            await bus.view().__aenter__()
