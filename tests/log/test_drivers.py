"""Drivers and their connections: several event loops, closing, lost replies."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, TypeVar

import pytest
from anyio import CancelScope

from scratchbus import AsyncBus, AsyncSubscription, AsyncView, Bus
from scratchbus.errors import BusClosed, ViewClosed
from tests.faults.proxy import Proxy
from tests.faults.servers import Server, embedded_binary
from tests.waiting import PATIENCE

T = TypeVar("T")

pytestmark = pytest.mark.real


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the first loop ends while the bus is open
def test_consecutive_event_loops_can_use_one_bus(embedded_url: str) -> None:
    bus = AsyncBus.connect(embedded_url, source="tester", bus=f"test-{token_hex(6)}")

    async def add() -> int:
        await asyncio.gather(*(bus.page().add("observation", "x") for _ in range(3)))
        return len(await bus.page().list())

    assert asyncio.run(add()) == 3
    assert asyncio.run(add()) == 6
    asyncio.run(bus.close())
    gc.collect()


@contextmanager
def consecutive_loops(*, are_ended: bool) -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """Yield a function that runs a coroutine in an event loop of its own, whose tasks are left pending unless ended."""
    loops: list[asyncio.AbstractEventLoop] = []

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        if are_ended:
            return asyncio.run(coroutine)
        loops.append(asyncio.new_event_loop())
        return loops[-1].run_until_complete(coroutine)

    try:
        yield run
    finally:
        for loop in loops:
            with asyncio.Runner(loop_factory=lambda loop=loop: loop) as runner:  # type: ignore[misc]
                runner.run(asyncio.sleep(0))  # it ends the pending tasks


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("are_ended", [True, False])
def test_consecutive_event_loops_follow_one_bus(embedded_url: str, are_ended: bool) -> None:
    bus = AsyncBus.connect(embedded_url, source="tester", bus=f"test-{token_hex(6)}")

    async def follow_one() -> str:
        after = await bus.position()
        events = bus.events(after, follow=True)
        next_event = asyncio.ensure_future(anext(events))
        async with bus.view() as view, asyncio.timeout(PATIENCE):
            added = await bus.page().add("observation", "x")
            await view.wait_for(added.position)
            assert (await next_event).subject == added.id
            async with await anext(subscription) as delivery:
                assert delivery.event.subject == added.id
        return added.id

    async def open_both() -> tuple[AsyncView, AsyncSubscription]:
        view = bus.view("left-open")
        await view.__aenter__()
        return view, bus.subscribe("s")

    with consecutive_loops(are_ended=are_ended) as run:
        view, subscription = run(open_both())
        assert run(follow_one()) != run(follow_one())
        with pytest.raises(ViewClosed):
            view.active()
        run(bus.close())
    gc.collect()


def test_a_call_in_progress_raises_bus_closed_on_close(embedded_url: str) -> None:
    async def close_meanwhile() -> None:
        bus = await AsyncBus.connect(embedded_url, source="tester", bus=f"test-{token_hex(6)}")
        adding = asyncio.create_task(bus.page().add("observation", "x"))
        await asyncio.sleep(0)
        await bus.close()
        with pytest.raises(BusClosed):
            await adding

    asyncio.run(close_meanwhile())


async def test_closing_in_a_cancelled_scope_closes_all_connections(embedded_url: str) -> None:
    bus = await AsyncBus.connect(embedded_url, source="tester", bus=f"test-{token_hex(6)}")
    ends = dict(enumerate((await bus.position()).shards))
    await asyncio.gather(*(bus.wait_for_events(ends, 0.01) for _ in range(3)))
    links = [link for idle in bus._reader._idle.values() for link in idle]
    links += bus._engine._shared.values()
    assert len(links) == 4
    with CancelScope() as scope:
        scope.cancel()  # each wait in it is cancelled
        await bus.close()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(link._lost for link in links))


async def test_a_subscription_cancelled_at_any_moment_keeps_no_lease(embedded_url: str) -> None:
    async with AsyncBus.connect(embedded_url, source="tester", bus=f"test-{token_hex(6)}") as bus:

        async def consume() -> None:
            async with bus.subscribe("router") as deliveries:
                await anext(deliveries)

        is_ended, steps = False, 0
        while not is_ended:
            await bus.page().add("observation", "x")
            consuming = asyncio.create_task(consume())
            for _ in range(steps):
                await asyncio.sleep(0)
            is_ended, steps = consuming.done(), steps + 1
            consuming.cancel()
            await asyncio.wait([consuming])
            assert [each.holder for each in await bus.subscriptions()] in ([], [None])


def test_a_closed_async_bus_refuses_every_call(embedded_url: str) -> None:
    async def use() -> None:
        bus = await AsyncBus.connect(embedded_url, source="tester", bus=f"test-{token_hex(6)}")
        await bus.page().add("observation", "x")
        following = bus.events(follow=True)
        await anext(following)
        await bus.close()
        for operation in (following.__anext__, bus.events().__anext__, bus.position, bus.page().list):
            with pytest.raises(BusClosed):
                await operation()

    asyncio.run(use())


def test_creating_a_bus_survives_the_loss_of_any_reply() -> None:
    server = Server(embedded_binary())
    try:
        server.start()
        with Proxy(server) as proxy:
            number, was_cut = 0, True
            while was_cut:
                number += 1
                proxy.arm("reply", number)
                with Bus.connect(proxy.url, bus=f"b{number}", shards=2) as bus:
                    assert bus.core.log.shards == 2
                was_cut = proxy.cuts > 0
            assert number > 3
    finally:
        server.close()
