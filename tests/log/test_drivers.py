"""Drivers and their connections: several event loops, closing, lost replies."""

from __future__ import annotations

import asyncio
import gc
from secrets import token_hex

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.errors import BusClosed
from tests.faults.proxy import Proxy
from tests.faults.servers import Server, embedded_binary

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


def test_a_call_in_progress_raises_bus_closed_on_close(embedded_url: str) -> None:
    async def close_meanwhile() -> None:
        bus = await AsyncBus.connect(embedded_url, source="tester", bus=f"test-{token_hex(6)}")
        adding = asyncio.create_task(bus.page().add("observation", "x"))
        await asyncio.sleep(0)
        await bus.close()
        with pytest.raises(BusClosed):
            await adding

    asyncio.run(close_meanwhile())


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
