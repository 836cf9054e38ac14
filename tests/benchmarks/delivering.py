"""Delivery: how soon a handler in another process has an event, and how fast a subscription works off a backlog."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import redis

from scratchbus import Bus
from tests.benchmarks.measure import Side, Taken, interleave, percentile
from tests.benchmarks.processes import Other, running
from tests.benchmarks.rows import Floor, Row, rates, times
from tests.benchmarks.stage import Sizes, Stage, given

STREAM = "bare"
CHUNK = 500
"""How many entries the bare reader asks for at once: as many as ours."""

PAUSE = 0.002
"""Seconds between two events, so that whoever had the last one waits again."""

WARM_UP = 20
"""So many events of each side are not counted."""


def measure_delivery(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare how long it takes from before an event is published until a handler in another process has it.

    The two take turns, event by event, each with a process of its own that waits for it.
    """
    bus = stage.bus("delivery")
    page = bus.page()
    page.add(**given(0))
    (entry,) = stage.entries(bus, 1)
    numbers = count(1)
    with (
        running(_handle, stage.url, bus.settings.bus) as subscriber,
        running(_read, str(stage.socket)) as reader,
    ):
        subscriber.hear()
        reader.hear()

        def ours() -> float:
            return _until_heard(subscriber, lambda: page.add(**given(next(numbers))))

        def theirs() -> float:
            return _until_heard(reader, lambda: stage.bare.xadd(STREAM, entry))

        for _ in range(WARM_UP):
            ours()
            theirs()
        samples = [_pairs(sizes.reads, ours, theirs) for _ in range(sizes.rounds)]
    rows = []
    for percent, most in ((50, 1.5), (99, 2.0)):
        taken: Taken = {
            "ours": [percentile([mine for mine, _ in pairs], percent) for pairs in samples],
            "theirs": [percentile([other for _, other in pairs], percent) for pairs in samples],
        }
        rows.append(
            times(
                taken, "ours", "theirs", what=f"page.add → handler of bus.subscribe, p{percent}",
                against=f"bare XADD → blocked XREAD + json.loads, p{percent}", floor=Floor("ratio", "at most", most),
            )
        )  # fmt: skip
    return rows


def _pairs(count: int, ours: Callable[[], float], theirs: Callable[[], float]) -> list[tuple[float, float]]:
    """Take the time of both, one after the other; who is first changes from pair to pair."""
    pairs = []
    for at in range(count):
        if at % 2:
            other, mine = theirs(), ours()
        else:
            mine, other = ours(), theirs()
        pairs.append((mine, other))
    return pairs


def _until_heard(handler: Other, publish: Callable[[], object]) -> float:
    time.sleep(PAUSE)
    begin = perf_counter()
    publish()
    return float(handler.hear()) - begin  # one clock for all processes of a machine


def _handle(pipe: Connection, url: str, name: str) -> None:
    with Bus.connect(url, source="bench", bus=name) as bus, bus.subscribe("bench", after=bus.position()) as deliveries:
        pipe.send("ready")
        for delivery in deliveries:
            pipe.send(perf_counter())
            delivery.ack()


def _read(pipe: Connection, socket: str) -> None:
    last: Any = "0"
    with redis.Redis(unix_socket_path=socket, socket_timeout=None) as bare:
        pipe.send("ready")
        while True:
            for _, entries in _xread(bare, STREAM, last, block=5_000):
                for last, fields in entries:  # noqa: B007 - the last one counts
                    json.loads(fields[b"event"])
                    pipe.send(perf_counter())


def _xread(bare: redis.Redis, stream: str, last: Any, block: int | None = None) -> Any:
    return bare.xread({stream: last}, count=CHUNK, block=block) or ()


def measure_subscribe(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare working off a backlog, every event acked, with reading and parsing the same entries."""
    bus = stage.bus("subscribe")
    page = bus.page()
    for number in range(sizes.backlog):
        page.add(**given(number))
    log = bus.core.log.keys(0).log
    names = (f"bench-{number}" for number in count())

    def subscribed() -> None:
        left = sizes.backlog
        with bus.subscribe(next(names)) as deliveries:
            for delivery in deliveries:
                delivery.ack()
                left -= 1
                if not left:
                    return

    def handled() -> None:
        left = sizes.backlog
        with bus.subscribe(next(names)) as deliveries:
            for delivery in deliveries:
                with delivery:
                    left -= 1
                if not left:
                    return

    def parsed() -> None:
        last: Any = "0"
        while answer := _xread(stage.bare, log, last):
            for last, fields in answer[0][1]:  # noqa: B007 - the last one counts
                json.loads(fields[b"event"])

    taken = interleave(
        sizes.rounds,
        Side("bus.subscribe, ack each", sizes.backlog, subscribed),
        Side("bus.subscribe, with delivery", sizes.backlog, handled),
        Side("bare XREAD + json.loads", sizes.backlog, parsed),
    )
    ours, managed, theirs = taken
    return [rates(taken, ours, theirs, floor=Floor("ratio", "at least", 0.5)), rates(taken, managed, theirs)]
