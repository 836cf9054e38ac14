"""Adding observations: one at a time, in batches, in threads, with asyncio; against bare `xadd` of the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from threading import Thread
from time import perf_counter
from typing import Any

import redis.asyncio

from scratchbus import NewObservation
from scratchbus.domain.events import Added
from scratchbus.eventlog.codec import encode_body
from scratchbus.eventlog.ids import new_event_id, new_id
from tests.benchmarks.measure import Side, Taken, interleave, percentile
from tests.benchmarks.rows import Floor, Row, rates, times
from tests.benchmarks.stage import BATCH, TYPES, Sizes, Stage, add_each, fill, given

STREAM = "bare"
IN_FLIGHT = 50
THREADS = 8

Given = dict[Any, Any]


def measure_add(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare `page.add`, one at a time."""
    bus, full = stage.bus("add"), stage.bus("full", room=100)
    page, full_page = bus.page(), full.page()
    items = [given(number) for number in range(sizes.adds)]
    alike = [item | {"type": TYPES[0]} for item in items]  # of one priority, so that each displaces another
    add_each(page, items)
    add_each(full_page, alike[:100])
    entries = stage.entries(bus, len(items))
    taken = interleave(
        sizes.rounds,
        Side("page.add, one at a time", len(items), lambda: add_each(page, items)),
        Side("bare xadd", len(entries), lambda: _xadd_each(stage, entries)),
        Side("page.add on a full page of 100", len(alike), lambda: add_each(full_page, alike)),
    )
    return [
        rates(taken, "page.add, one at a time", "bare xadd", floor=Floor("ratio", "at least", 0.7)),
        rates(
            taken, "page.add on a full page of 100", "bare xadd", floor=Floor("ratio", "at least", 0.4),
            note="each addition displaces another observation, so it writes two events in one batch",
        ),
    ]  # fmt: skip


def _xadd_each(stage: Stage, entries: Iterable[Given]) -> None:
    for fields in entries:
        stage.bare.xadd(STREAM, fields)


def measure_latency(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare the median and the 99th percentile of single `page.add`s."""
    bus = stage.bus("latency")
    page = bus.page()
    items = [given(number) for number in range(sizes.adds)]
    add_each(page, items)
    entries = stage.entries(bus, len(items))
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    interleave(
        sizes.rounds,
        Side("page.add", len(items), lambda: ours.append([_clocked(page.add, **item) for item in items])),
        Side("xadd", len(items), lambda: theirs.append([_clocked(stage.bare.xadd, STREAM, row) for row in entries])),
    )
    rows = []
    for percent in (50, 99):
        taken: Taken = {
            "ours": [percentile(one, percent) for one in ours[1:]],  # the first round warmed up
            "theirs": [percentile(one, percent) for one in theirs[1:]],
        }
        what, against = f"page.add, p{percent}", f"bare xadd, p{percent}"
        floor = Floor("ratio", "at most", 2.5) if percent == 99 else None
        rows.append(times(taken, "ours", "theirs", what=what, against=against, floor=floor))
    return rows


def _clocked(do: Callable[..., object], *args: Any, **named: Any) -> float:
    begin = perf_counter()
    do(*args, **named)
    return perf_counter() - begin


def measure_batch(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare `add_many` in batches of 500."""
    bus = stage.bus("batch")
    page = bus.page()
    items = [given(number) for number in range(BATCH)]
    ready = [NewObservation(**item) for item in items]
    fill(page, BATCH)
    entries = stage.entries(bus, BATCH)[::-1]
    priorities = {name: bus.types.get(name).priority for name in TYPES}
    ttl = bus.settings.ms("default_expiration")

    def add_many() -> None:
        for _ in range(sizes.batches):
            page.add_many([NewObservation(**item) for item in items])

    def add_ready() -> None:
        for _ in range(sizes.batches):
            page.add_many(ready)

    def xadd() -> None:
        for _ in range(sizes.batches):
            pipeline = stage.bare.pipeline(transaction=False)
            for fields in entries:
                pipeline.xadd(STREAM, fields)
            pipeline.execute()

    def validated_xadd() -> None:
        for _ in range(sizes.batches):
            pipeline = stage.bare.pipeline(transaction=False)
            for fields, item in zip(entries, items, strict=True):
                pipeline.xadd(STREAM, fields | _fresh_fields(item, priorities[item["type"]], ttl))
            pipeline.execute()

    count = sizes.batches * BATCH
    taken = interleave(
        sizes.rounds,
        Side("add_many, batches of 500", count, add_many),
        Side("bare pipelined xadd of 500", count, xadd),
        Side("validate + encode + pipelined xadd of 500", count, validated_xadd),
        Side("add_many, NewObservations made before", count, add_ready),
    )
    whole, bare, checked, prepared = taken
    return [
        rates(taken, whole, bare, floor=Floor("ratio", "at least", 0.6)),
        rates(taken, whole, checked, floor=Floor("ratio", "at least", 0.6)),
        rates(taken, prepared, bare),
    ]


def _fresh_fields(item: Given, priority: int, ttl: int | None) -> dict[bytes, Any]:
    """Validate and encode one event; return the fields that differ from entry to entry."""
    event = Added(id=new_event_id(), subject=new_id(), by="bench", priority=priority, ttl=ttl, **item)
    return {b"id": event.id, b"subject": event.subject, b"event": encode_body(event)}


def measure_async(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare `page.add` of AsyncBus with bare asyncio redis-py, one at a time and many in flight."""
    items = [given(number) for number in range(sizes.adds)]
    named = stage.bus("async")
    fill(named.page(), len(items))
    entries = stage.entries(named, len(items))
    with asyncio.Runner() as runner:
        bus = runner.run(stage.async_bus(named.settings.bus))
        bare = redis.asyncio.Redis(unix_socket_path=str(stage.socket))
        page = bus.page()

        async def add(item: Given) -> None:
            await page.add(**item)

        async def xadd(fields: Given) -> None:
            await bare.xadd(STREAM, fields)

        try:
            taken = interleave(
                sizes.rounds,
                Side("async page.add, one at a time", len(items), lambda: runner.run(_flight(add, items, 1))),
                Side("bare async xadd", len(items), lambda: runner.run(_flight(xadd, entries, 1))),
                Side("async page.add, 50 in flight", len(items), lambda: runner.run(_flight(add, items, IN_FLIGHT))),
                Side(
                    "bare async xadd, 50 in flight", len(items), lambda: runner.run(_flight(xadd, entries, IN_FLIGHT))
                ),
            )
        finally:
            runner.run(bus.close())
            runner.run(bare.aclose())
    single, bare_single, many, bare_many = taken
    aim = Floor("ratio", "at least", 1.5)
    return [rates(taken, single, bare_single), rates(taken, many, bare_many, floor=aim)]


def measure_threads(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare threads that add through one Bus with threads that add through one bare redis-py client."""
    items = [given(number) for number in range(sizes.adds)]
    bus = stage.bus("threads")
    page = bus.page()
    fill(page, len(items))
    entries = stage.entries(bus, len(items))
    taken = interleave(
        sizes.rounds,
        Side(f"page.add, {THREADS} threads", len(items), lambda: _in_threads(lambda item: page.add(**item), items)),
        Side(
            f"bare xadd, {THREADS} threads",
            len(entries),
            lambda: _in_threads(lambda fields: stage.bare.xadd(STREAM, fields), entries),
        ),
    )
    return [rates(taken, *taken, floor=Floor("ratio", "at least", 1.2))]


def _in_threads(do: Callable[[Given], object], items: Sequence[Given]) -> None:
    """Call `do` with all items, divided among threads."""

    def work(mine: Sequence[Given]) -> None:
        for item in mine:
            do(item)

    threads = [Thread(target=work, args=(items[number::THREADS],)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _flight(do: Callable[[Given], Awaitable[None]], items: Iterable[Given], width: int) -> None:
    """Call `do` with all items, `width` at a time."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await do(item)

    await asyncio.gather(*(work() for _ in range(width)))
