"""Many subscriptions and views of one page: what they cost the publisher."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter

from scratchbus import Bus
from scratchbus.subscriptions.subscription import Subscription
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.processes import PATIENCE, running
from tests.benchmarks.rows import Floor, Row, rates
from tests.benchmarks.stage import Sizes, Stage, given

PROCESSES = 4


def measure_crowd(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare adding to a page with many followers with adding to one with a single follower."""
    many, each = sizes.followers, sizes.followers // PROCESSES
    with ExitStack() as started:
        alone = _Followed(stage, started, "alone", 1, 1)
        together = _Followed(stage, started, "together", 1, many)
        apart = _Followed(stage, started, "apart", PROCESSES, each)

        def settle() -> None:
            for followed in (alone, together, apart):
                followed.settle()

        def side(name: str, followed: _Followed) -> Side:
            return Side(name, sizes.published, lambda: followed.add(sizes.published), settle)

        taken = interleave(
            sizes.rounds,
            side("page.add, 1 subscription", alone),
            side(f"page.add, {many} subscriptions and views in one process", together),
            side(f"page.add, {PROCESSES} processes of {each} subscriptions and views", apart),
        )
        settle()
    one, in_one, in_four = taken
    return [
        rates(taken, in_one, one, floor=Floor("ratio", "at least", 0.7), note=together.delay),
        rates(taken, in_four, one, note=apart.delay),
    ]


class _Followed:
    """A bus that several processes follow, each with half subscriptions and half views."""

    def __init__(self, stage: Stage, started: ExitStack, name: str, processes: int, followers: int) -> None:
        self._bus = stage.bus(name)
        self._page = self._bus.page()
        self._page.add(**given(0))
        self._done = perf_counter()
        self._is_settled = True
        self._delays: list[float] = []
        self._others = [
            started.enter_context(running(_follow, stage.url, name, f"{name}-{number}", followers))
            for number in range(processes)
        ]
        self._ask()

    def add(self, count: int) -> None:
        """Add `count` observations, one at a time."""
        for number in range(count):
            self._page.add(**given(number))
        self._done, self._is_settled = perf_counter(), False

    def settle(self) -> None:
        """Wait until every follower has seen every event."""
        if not self._is_settled:
            self._ask()
            self._delays.append(perf_counter() - self._done)
            self._is_settled = True

    @property
    def delay(self) -> str:
        """How long after the last event every follower had seen every event."""
        return f"every follower had seen every event {median(self._delays) * 1e3:,.0f} ms after the last addition"

    def _ask(self) -> None:
        end = str(self._bus.position())
        for other in self._others:
            other.send(end)
        for other in self._others:
            other.receive()


def _follow(pipe: Connection, url: str, bus_name: str, name: str, followers: int) -> None:
    """Follow a bus; for each position received, answer once every follower has seen it."""
    subscribed = (followers + 1) // 2
    with Bus.connect(url, source=name, bus=bus_name) as bus, ExitStack() as opened:
        subscribers = [
            _Subscriber(opened.enter_context(bus.subscribe(f"{name}-{number}"))) for number in range(subscribed)
        ]
        views = [opened.enter_context(bus.view()) for _ in range(followers - subscribed)]
        while True:
            end = pipe.recv()
            for view in views:
                view.wait_for(end, PATIENCE)
            last = bus.position().shards[0].seq
            for subscriber in subscribers:
                subscriber.wait_for(last)
            pipe.send("seen")


class _Subscriber:
    """A thread that acks every delivery."""

    def __init__(self, subscription: Subscription) -> None:
        self._seen = 0
        self._moved = threading.Condition()
        threading.Thread(target=subscription.run, args=(self._see,), daemon=True).start()

    def _see(self, event: object) -> None:
        with self._moved:
            self._seen += 1
            self._moved.notify()

    def wait_for(self, seen: int) -> None:
        with self._moved:
            if not self._moved.wait_for(lambda: self._seen >= seen, PATIENCE):
                raise TimeoutError(f"only {self._seen:,} of {seen:,} events were delivered")
