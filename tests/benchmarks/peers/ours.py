"""Our side of each comparison: scratchbus publishes and consumes the same events, on the same engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from scratchbus import NewObservation
from tests.benchmarks.measure import Side
from tests.benchmarks.stage import BATCH, Stage, ack_each, add_each, fill, given

Prepare = Callable[[], object]


class Ours(NamedTuple):
    """Our sides: those that publish, and those that consume."""

    publish: Side
    publish_async: Side
    publish_many: Side
    consume: Side
    consume_async: Side


@contextmanager
def ours(stage: Stage, runner: asyncio.Runner, events: int, prepare: Prepare) -> Iterator[Ours]:
    """Yield our sides, for `events` events each; `prepare` runs before each round of a side."""
    items = [given(number) for number in range(events)]
    page = stage.bus("published").page()
    followed = stage.bus("consumed")
    fill(followed.page(), events)
    published_async = runner.run(stage.async_bus("published-async"))
    consumed_async = runner.run(stage.async_bus("consumed"))
    names = (f"bench-{number}" for number in count())

    async def add_async() -> None:
        page = published_async.page()
        for item in items:
            await page.add(**item)

    def add_many() -> None:
        for first in range(0, events, BATCH):
            page.add_many([NewObservation(**item) for item in items[first : first + BATCH]])

    async def consume_async() -> None:
        left = events
        async with consumed_async.subscribe(next(names)) as deliveries:
            async for delivery in deliveries:
                await delivery.ack()
                left -= 1
                if not left:
                    return

    def side(name: str, work: Callable[[], Any]) -> Side:
        return Side(name, events, work, prepare)

    try:
        yield Ours(
            side("page.add", lambda: add_each(page, items)),
            side("await page.add", lambda: runner.run(add_async())),
            side(f"page.add_many of {BATCH}", add_many),
            side("bus.subscribe, ack each", lambda: ack_each(followed, next(names), events)),
            side("bus.subscribe of AsyncBus, ack each", lambda: runner.run(consume_async())),
        )
    finally:
        runner.run(published_async.close())
        runner.run(consumed_async.close())
