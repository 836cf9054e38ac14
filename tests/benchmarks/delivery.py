"""Delivery: how soon another process handles an event, and how fast a subscription handles a backlog."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count, islice
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, NamedTuple

import redis

from scratchbus import Bus
from tests.benchmarks.measure import Side, Taken, interleave, percentile
from tests.benchmarks.processes import Other, running
from tests.benchmarks.rows import Floor, Row, rates, times
from tests.benchmarks.stage import Sizes, Stage, ack_each, add_each, given

STREAM = "bare"
CHUNK = 500
"""How many entries the bare reader requests at once: as many as ours."""

PAUSE = 0.002
"""Seconds between two events, so that each reader waits again."""

WARM_UP = 20
"""Events of each side that are not counted."""


def measure_delivery(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare the time from publishing an event until another process handles it.

    The sides alternate, event by event, each with its own waiting process. One side publishes with us and reads with a
    bare client, which shows how much of the time is the writing.
    """
    page, other = stage.bus("delivery").page(), stage.bus("delivery-bare")
    page.add(**given(0))
    other.page().add(**given(0))
    (entry,) = stage.entries(other, 1)
    numbers, socket = count(1), str(stage.socket)
    with (
        running(_handle, stage.url, "delivery") as subscriber,
        running(_read, socket, other.core.log.keys(0).log, str(other.position())) as reader_of_log,
        running(_read, socket, STREAM, "0") as reader,
    ):
        for process in (subscriber, reader_of_log, reader):
            process.receive()
        taken = _in_turns(
            sizes,
            {
                "page.add → handler of bus.subscribe": _Way(subscriber, lambda: page.add(**given(next(numbers)))),
                "page.add → blocked XREAD": _Way(reader_of_log, lambda: other.page().add(**given(next(numbers)))),
                "bare XADD → blocked XREAD + json.loads": _Way(reader, lambda: stage.bare.xadd(STREAM, entry)),
            },
        )
    ours, written, bare = taken[50]
    return [
        times(taken[50], ours, bare, what=f"{ours}, p50", floor=Floor("ratio", "at most", 1.3)),
        times(taken[99], ours, bare, what=f"{ours}, p99", floor=Floor("ratio", "at most", 1.5)),
        times(taken[50], written, bare, what=f"{written} + json.loads, p50", note="the cost of writing alone"),
    ]


class _Way(NamedTuple):
    """A publisher in this process, and a handler in another."""

    handler: Other
    publish: Callable[[], object]


def _in_turns(sizes: Sizes, ways: dict[str, _Way]) -> dict[int, Taken]:
    """Time all ways in turn, event by event; return the median and the 99th percentile of each round."""
    names = list(ways)
    taken: dict[int, Taken] = {percent: {name: [] for name in names} for percent in (50, 99)}
    for each in range(-1, sizes.rounds):
        samples: dict[str, list[float]] = {name: [] for name in names}
        for at in range(sizes.reads if each >= 0 else WARM_UP):
            first = at % len(names)
            for name in (*names[first:], *names[:first]):
                samples[name].append(_until_handled(*ways[name]))
        for percent in taken if each >= 0 else ():
            for name in names:
                taken[percent][name].append(percentile(samples[name], percent))
    return taken


def _until_handled(handler: Other, publish: Callable[[], object]) -> float:
    time.sleep(PAUSE)
    begin = perf_counter()
    publish()
    return float(handler.receive()) - begin  # all processes share this clock


def _handle(pipe: Connection, url: str, name: str) -> None:
    with Bus.connect(url, source="bench", bus=name) as bus, bus.subscribe("bench", after=bus.position()) as deliveries:
        pipe.send("ready")
        for delivery in deliveries:
            pipe.send(perf_counter())
            delivery.ack()


def _read(pipe: Connection, socket: str, stream: str, last: Any) -> None:
    with redis.Redis(unix_socket_path=socket, socket_timeout=None) as bare:
        pipe.send("ready")
        while True:
            for _, entries in _xread(bare, stream, last, block=5_000):
                for last, fields in entries:  # noqa: B007 - the last one counts
                    json.loads(fields[b"event"])
                    pipe.send(perf_counter())


def _xread(bare: redis.Redis, stream: str, last: Any, block: int | None = None) -> Any:
    return bare.xread({stream: last}, count=CHUNK, block=block) or ()


def measure_subscribe(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare handling a backlog, every event acked, with reading and parsing the same entries."""
    bus = stage.bus("subscribe")
    add_each(bus.page(), map(given, range(sizes.backlog)))
    log = bus.core.log.keys(0).log
    names = (f"bench-{number}" for number in count())

    def handled() -> None:
        with bus.subscribe(next(names)) as deliveries:
            for delivery in islice(deliveries, sizes.backlog):
                with delivery:
                    pass

    def parsed() -> None:
        last: Any = "0"
        while answer := _xread(stage.bare, log, last):
            for last, fields in answer[0][1]:  # noqa: B007 - the last one counts
                json.loads(fields[b"event"])

    taken = interleave(
        sizes.rounds,
        Side("bus.subscribe, ack each", sizes.backlog, lambda: ack_each(bus, next(names), sizes.backlog)),
        Side("bus.subscribe, with delivery", sizes.backlog, handled),
        Side("bare XREAD + json.loads", sizes.backlog, parsed),
    )
    ours, managed, theirs = taken
    return [rates(taken, ours, theirs, floor=Floor("ratio", "at least", 1.0)), rates(taken, managed, theirs)]
