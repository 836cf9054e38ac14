"""`make bench-scaling`: the cost of an event on clusters of one, two and three masters with 16 shards.

All run on one machine, whose cores limit the events per second. So the figure that counts is the CPU time of each
process for an event: it determines how many masters, projectors and clients a load needs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from scratchbus import AsyncBus, Bus
from scratchbus.readmodel.catch_up import MAX_CHUNKS, fold_once
from tests.benchmarks.stage import ROOM, given
from tests.faults.clusters import Cluster
from tests.faults.servers import Server

SHARDS = 16
PAGES = 64
IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Cost:
    """An operation on a cluster: events per second, and microseconds of CPU time for an event."""

    masters: int
    what: str
    rate: float
    on_masters: float
    here: float


def measure(masters: int, events: int) -> list[Cost]:
    """Measure adding and folding `events` events on a cluster of `masters` masters."""
    with Cluster(masters, has_replicas=False) as cluster:
        with Bus.connect(cluster.url, source="bench", shards=SHARDS, max_observations=ROOM) as bus:
            added = _cost(cluster, "add, 64 in flight", events, lambda: asyncio.run(_add(cluster.url, events)))
            folded = _cost(cluster, "fold and commit", events, lambda: _fold(bus))
        return [added, folded]


def _cost(cluster: Cluster, what: str, events: int, work: Callable[[], object]) -> Cost:
    before, here, begin = sum(map(_cpu, cluster.masters)), time.process_time(), time.perf_counter()
    work()
    seconds, here = time.perf_counter() - begin, time.process_time() - here
    spent = sum(map(_cpu, cluster.masters)) - before
    return Cost(len(cluster.masters), what, events / seconds, spent / events * 1e6, here / events * 1e6)


def _cpu(server: Server) -> float:
    """Return the CPU seconds of a server."""
    with server.client() as client:
        found: Any = client.info("cpu")
    return float(found["used_cpu_user"] + found["used_cpu_sys"])


async def _add(url: str, events: int) -> None:
    numbers = iter(range(events))
    async with AsyncBus.connect(url, source="bench", shards=SHARDS, max_observations=ROOM) as bus:
        pages = [bus.page(f"page-{number}") for number in range(PAGES)]

        async def some() -> None:
            for number in numbers:
                await pages[number % PAGES].add(**given(number))

        await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))


def _fold(bus: Bus) -> None:
    for shard in range(SHARDS):
        known = None
        while True:
            folded, known = bus.converse(fold_once(bus.core.log, shard, known, max_chunks=MAX_CHUNKS))
            if folded.is_all:
                break


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--events", type=int, default=40_000, show_default=True, help="Number of events for each row.")
def main(events: int) -> None:
    """Measure the cost of an event on one, two and three masters."""
    table = Table("masters", "what", "events/s", "CPU of all masters", "CPU of the client", box=None, header_style="")
    for masters in (1, 2, 3):
        for cost in measure(masters, events):
            figures = (f"{cost.rate:,.0f}", f"{cost.on_masters:,.1f}", f"{cost.here:,.1f}")
            table.add_row(str(masters), cost.what, *figures)
    console = Console()
    console.print(table)
    console.print("CPU times are microseconds for one event")


if __name__ == "__main__":
    main()
