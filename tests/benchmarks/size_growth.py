"""`make bench-growth`: the cost of operations on pages, logs, buses and archives of very different sizes.

Each figure is the median time of one operation. Only figures of one run can be compared: the operations are timed one
after the other on each size, with one bus open.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import isnan, nan
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from scratchbus import Bus, Page
from scratchbus.archive.archive_check import verify as verify_archive
from scratchbus.archive.archiver import archive_bus
from scratchbus.archive.stores import open_store
from tests.benchmarks.stage import ROOM, TAGS, TYPES, Stage, add_each, catch_up, fill, given, open_stage, sighting
from tests.benchmarks.time_slider import time_slider

LIMIT = 20
TIMES = 200
SEEN = 10
"""Sightings of each observation of a long log."""

RECENT = 100
"""How many events ago `recent` is."""

KEPT = 100
"""How many events stay in an archived log."""

MAX_VERIFIED = 1_000_000
"""The largest log for which `bus.verify` is measured; with ten million events it takes half an hour."""

MAX_GROWTH = 1.5
"""The growth of a cost, from the smallest to the largest size, above which it is shown in red."""

console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one operation, in seconds or bytes."""

    what: str
    figure: float
    unit: str = "µs"

    @property
    def text(self) -> str:
        """The figure with its unit."""
        if isnan(self.figure):
            return "–"
        return f"{self.figure:,.0f} B" if self.unit == "B" else f"{self.figure * 1e6:,.1f} µs"


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def median_of(bus: Bus, work: Callable[[Any], object], *each: Any, times: int | None = None) -> float:
    """Return the median of the seconds that a call takes, with each argument in turn.

    In between, all events are folded, as by a projector.
    """
    taken = []
    for at in range(min(times or TIMES, TIMES)):
        taken.append(seconds_of(partial(work, each[at % len(each)])))
        catch_up(bus)
    return median(taken)


def open_page(stage: Stage, size: int) -> list[Cost]:
    """Measure a page of `size` open observations."""
    bus = stage.bus(f"open-{size}")
    page = bus.page()
    before: Any = stage.bare.info("memory")
    filled = seconds_of(lambda: fill(page, size))
    folded = seconds_of(lambda: catch_up(bus))
    after: Any = stage.bare.info("memory")
    memory = (after["used_memory"] - before["used_memory"]) / size
    ids = [one.id for one in page.list(limit=10_000)]
    some = random.Random(7).sample(ids, min(TIMES, len(ids)))
    view = stage.bus(f"open-{size}").view(page.name)
    started = seconds_of(view.__enter__)
    costs = [
        Cost("add_many of 500, each", filled / size),
        Cost("fold and commit, each", folded / size),
        Cost("add", median_of(bus, lambda at: page.add(**given(at)), *range(TIMES))),
        Cost("get", median_of(bus, page.get, *some)),
        Cost("update", median_of(bus, lambda id: page.update(id, confidence=0.5), *some)),
        Cost("claim_next, resolve", median_of(bus, lambda _: _take(page), 0)),
        Cost("active(limit=20)", median_of(bus, lambda _: page.active(limit=LIMIT), 0)),
        Cost("list(type=, tags=, limit=20)", median_of(bus, lambda _: _narrow(page), 0)),
        Cost("list(limit=20)", median_of(bus, lambda _: page.list(limit=LIMIT), 0)),
        Cost(
            "context of 8,000 tokens",
            median_of(bus, lambda _: bus.context.assemble(page=page.name, budget=8_000), 0, times=20),
        ),
        Cost("start of a view, each", started / size),
        Cost("view.active(limit=20)", median_of(bus, lambda _: view.active(limit=LIMIT), 0)),
        Cost("engine memory, each", memory, "B"),
    ]
    view.close()
    return costs


def _take(page: Page) -> None:
    job = page.claim_next()
    assert job is not None
    job.resolve()


def _narrow(page: Page) -> None:
    page.list(type=TYPES[0], tags=[TAGS[0]], limit=LIMIT)


def long_log(stage: Stage, size: int) -> list[Cost]:
    """Measure a log of `size` events with ten sightings of each observation, far apart."""
    bus = stage.bus(f"log-{size}")
    ids, then = _add_sightings(bus, size)
    page = bus.page()
    some = random.Random(7).sample(ids, min(TIMES, len(ids)))
    verified = seconds_of(bus.verify)
    return [
        Cost("history of ten events", median_of(bus, page.history, *some)),
        Cost("as_of(recent).get", median_of(bus, page.as_of(then).get, *some, times=50)),
        Cost(
            "as_of(recent), active(limit=20)",
            median_of(bus, lambda _: page.as_of(then).active(limit=LIMIT), 0, times=20),
        ),
        Cost("events(after=recent), all 100", median_of(bus, lambda _: list(bus.events(then)), 0, times=50)),
        Cost("trace", median_of(bus, page.trace, "action-1", times=50)),
        Cost("verify, each event", verified / size),
    ]


def _add_sightings(bus: Bus, size: int) -> tuple[list[str], Any]:
    """Write `size` events and some more; return the ids of the observations, and the position in between."""
    page, apart = bus.page(), max(1, size // SEEN)
    ids = fill(page, size, partial(sighting, apart=apart))[:apart]
    then = bus.position()
    page.link(ids[0], "action-1")
    add_each(page, (sighting(each, apart) for each in range(RECENT - 1)))
    catch_up(bus)
    return ids, then


def _slide(stage: Stage, size: int) -> list[Cost]:
    return [Cost(what, seconds) for what, seconds in time_slider(stage, size)]


def many_pages(stage: Stage, size: int) -> list[Cost]:
    """Measure a bus of `size` pages with ten observations each."""
    bus = stage.bus(f"pages-{size}")
    pages = [bus.page(f"page-{number}") for number in range(size)]
    for page in pages:
        fill(page, 10)
    folded = seconds_of(lambda: catch_up(bus))
    some = random.Random(7).sample(pages, min(TIMES, size))
    numbers = iter(range(10**9))
    with bus.work("workers") as jobs:
        first = iter(jobs)
        seek = seconds_of(lambda: next(first).resolve())
        took = median_of(bus, lambda _: next(first).resolve(), 0, times=50)
    return [
        Cost("add", median_of(bus, lambda page: page.add(**given(next(numbers))), *some)),
        Cost("active(limit=20)", median_of(bus, lambda page: page.active(limit=LIMIT), *some)),
        Cost("fold and commit, each", folded / (10 * size)),
        Cost("connect, first read", median_of(bus, lambda page: _connect(stage, bus, page.name), *some, times=20)),
        Cost("status, each page", median_of(bus, lambda _: bus.status(), 0, times=5) / size),
        Cost("work on all pages, first job, each page", seek / size),
        Cost("work on all pages, next job", took),
    ]


def _connect(stage: Stage, bus: Bus, name: str) -> None:
    with Bus.connect(stage.url, source="bench", bus=bus.core.log.bus) as opened:
        opened.page(name).active(limit=LIMIT)


def archived(stage: Stage, size: int) -> list[Cost]:
    """Measure a log of `size` events, all but the last hundred of which are archived."""
    terms: dict[str, Any] = {"retain": "1ms", "retain_events": KEPT, "max_observations": ROOM}
    with TemporaryDirectory(prefix="scratchbus-archive-") as name:
        url = f"{name}/archive"
        with Bus.connect(stage.url, source="bench", bus=f"archived-{size}", archive_url=url, **terms) as bus:
            ids: list[str] = []  # only some, because a list of millions slows the garbage collector
            written, spent, then = 0, 0.0, None
            while written < size:
                added = fill(bus.page(), min(200_000, size - written))
                catch_up(bus)
                then = then or bus.position()
                spent += seconds_of(lambda: archive_bus(bus))
                written += len(added)
                ids += added[: -KEPT or None : 1_000]
                console.print(f"{written:,} of {size:,} events archived", style="dim", end="\r")
            page = bus.page()
            some = random.Random(7).sample(ids, min(50, len(ids)))
            reports: list[int] = []
            store = open_store(url)
            verified = seconds_of(lambda: verify_archive(store, lambda done, total: reports.append(done)))
            assert reports
            assert then is not None
            return [
                Cost("archive run, each event", spent / size),
                Cost("history of an archived event", median_of(bus, page.history, *some, times=50)),
                Cost("the first as_of(long ago)", seconds_of(lambda: page.as_of(then))),
                Cost("as_of(long ago), get", median_of(bus, lambda id: page.as_of(then).get(id), *ids[:20], times=20)),
                Cost("verify_archive, each event", verified / size),
                Cost("verify, each event", seconds_of(bus.verify) / size if size <= MAX_VERIFIED else nan),
            ]


@contextmanager
def _timed(what: str) -> Iterator[None]:
    begin = time.perf_counter()
    with console.status(f"{what} …"):
        yield
    console.print(f"{what}: {time.perf_counter() - begin:.0f} s", style="dim")


def _print(title: str, sizes: list[int], columns: list[list[Cost]]) -> None:
    table = Table(title, *(f"{size:,}" for size in sizes), "growth", box=None, header_style="bold")
    for costs in zip(*columns, strict=True):
        growth = costs[-1].figure / costs[0].figure
        style = "red" if growth > MAX_GROWTH else ""
        table.add_row(costs[0].what, *(cost.text for cost in costs), f"{growth:.2f}×", style=style)
    Console(width=140).print(table)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--size", "maximum", type=int, default=1_000_000, show_default=True, help="Size of the largest page and log."
)
@click.option("--pages", type=int, default=10_000, show_default=True, help="The largest number of pages.")
@click.option("--archived", "max_archived", type=int, default=1_000_000, show_default=True, help="The largest archive.")
def main(maximum: int, pages: int, max_archived: int) -> None:
    """Measure how costs grow with the size of pages, logs, buses and archives."""
    measured: tuple[tuple[str, Callable[[Stage, int], list[Cost]], list[int]], ...] = (
        ("open observations", open_page, [1_000, 100_000, maximum]),
        ("events in the log", long_log, [1_000, 100_000, maximum]),
        ("events behind the time slider", _slide, [10_000, 100_000, maximum]),
        ("pages", many_pages, [10, pages]),
        ("events in the archive", archived, [10_000, max_archived]),
    )
    for title, measure, given_sizes in measured:
        sizes = sorted({size for size in given_sizes if size <= given_sizes[-1]})
        columns = []
        for size in sizes:
            with _timed(f"{size:,} {title}"), open_stage() as stage:
                columns.append(measure(stage, size))
        _print(title, sizes, columns)


if __name__ == "__main__":
    main()
