"""FastStream on Redis streams: publishing and consuming the same observations as we do, on the same engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import redis
from faststream.redis import RedisBroker, StreamSub
from pydantic import BaseModel

from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.peers.ours import ours
from tests.benchmarks.rows import Floor, Row, rates
from tests.benchmarks.stage import BATCH, Stage, given

PUBLISHED = "faststream-published"
CONSUMED = "faststream-consumed"
CHUNK = 500
"""How many entries its subscribers request at once: as many as ours."""


class Seen(BaseModel):
    """A published observation as a handler receives it: validated and typed, as ours."""

    type: str
    content: str
    tags: list[str]


def measure_faststream(stage: Stage, rounds: int, events: int) -> list[Row]:
    """Compare publishing, one at a time and in batches, and consuming, with acks and without."""
    with asyncio.Runner() as runner:
        theirs = _FastStream(stage.bare, f"unix://{stage.socket}", [given(number) for number in range(events)])
        runner.run(theirs.open())

        def ready() -> None:
            runner.run(theirs.stop())

        def side(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Side:
            return Side(f"FastStream {name}", events, lambda: runner.run(work()), ready)

        with ours(stage, runner, events, ready) as mine:
            published = interleave(
                rounds,
                mine.publish,
                mine.publish_async,
                mine.publish_many,
                side("broker.publish", theirs.publish),
                side(f"broker.publish, {BATCH} in a pipeline", theirs.publish_many),
            )
            consumed = interleave(
                rounds,
                mine.consume,
                mine.consume_async,
                side("subscriber of a group, with acks", theirs.consume_in_group),
                side("subscriber, no group", theirs.consume),
            )
        runner.run(theirs.close())
    floor = Floor("ratio", "at least", 16)
    add, add_async, add_many, publish, publish_many = published
    subscribe, subscribe_async, in_group, alone = consumed
    return [
        rates(published, add, publish, floor=Floor("ratio", "at least", 0.9)),
        rates(published, add_async, publish),
        rates(published, add_many, publish),
        rates(published, add_many, publish_many, floor=Floor("ratio", "at least", 1.5)),
        rates(consumed, subscribe, in_group, floor=floor),
        rates(consumed, subscribe_async, in_group, floor=floor),
        rates(consumed, subscribe, alone),
    ]


class _FastStream:
    """A broker that publishes items, and a new broker for each time they are consumed."""

    def __init__(self, bare: redis.Redis, url: str, items: list[dict[str, Any]]) -> None:
        self._bare = bare
        self._url = url
        self._items = items
        self._publisher = RedisBroker(url, logger=None)
        self._consuming: RedisBroker | None = None
        self._groups = (f"bench-{number}" for number in count())

    async def open(self) -> None:
        self._client = await self._publisher.connect()
        await self.publish(CONSUMED)

    async def close(self) -> None:
        await self.stop()
        await self._publisher.stop()

    async def stop(self) -> None:
        """Stop the last consumer. Not timed, because it first finishes its wait for more entries."""
        if self._consuming is not None:
            await self._consuming.stop()
            self._consuming = None

    async def publish(self, stream: str = PUBLISHED) -> None:
        for item in self._items:
            await self._publisher.publish(item, stream=stream)

    async def publish_many(self) -> None:
        for first in range(0, len(self._items), BATCH):
            async with self._client.pipeline() as pipeline:
                for item in self._items[first : first + BATCH]:
                    await self._publisher.publish(item, stream=PUBLISHED, pipeline=pipeline)
                await pipeline.execute()

    async def consume(self) -> None:
        await self._consume(StreamSub(CONSUMED, last_id="0", max_records=CHUNK))

    async def consume_in_group(self) -> None:
        group = next(self._groups)
        self._bare.xgroup_create(CONSUMED, group, id="0")
        await self._consume(StreamSub(CONSUMED, group=group, consumer="bench", max_records=CHUNK))

    async def _consume(self, stream: StreamSub) -> None:
        self._consuming = broker = RedisBroker(self._url, logger=None)
        left, done = len(self._items), asyncio.Event()

        @broker.subscriber(stream=stream)
        async def handle(seen: Seen) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        await broker.start()
        await done.wait()
