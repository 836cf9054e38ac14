"""`make bench-stages`: the parts of the time of an addition, a fold, a read and a delivery.

For comparison it prints the minimum on this machine: a round trip of a `PING` over the same socket.
"""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import click
from hiredis import pack_command
from rich.console import Console
from rich.table import Table

from scratchbus import NewObservation
from scratchbus.engine.drivers import Engine
from tests.benchmarks.stage import FULL, QUICK, Sizes, Stage, ack_each, add_each, catch_up, fill, given, open_stage

ROUNDS = 7


class Spent(NamedTuple):
    """Microseconds of one operation: in total, waiting for the engine, and CPU time of the engine."""

    what: str
    total: float
    away: float
    engine: float

    @property
    def python(self) -> float:
        """The time of Python before and after requests."""
        return self.total - self.away

    @property
    def between(self) -> float:
        """The time of sockets, wake-ups and the driver, while the engine does not work."""
        return self.away - self.engine


@contextmanager
def _watched() -> Iterator[list[float]]:
    """Collect the seconds that each request takes."""
    seconds: list[float] = []
    watched = {name: getattr(Engine, name) for name in ("execute", "_send_ahead", "_collect")}

    def clocked(do: Callable[..., Any]) -> Callable[..., Any]:
        def clock(engine: Engine, request: object) -> Any:
            begin = time.perf_counter()
            try:
                return do(engine, request)
            finally:
                seconds.append(time.perf_counter() - begin)

        return clock

    for name, do in watched.items():
        setattr(Engine, name, clocked(do))
    try:
        yield seconds
    finally:
        for name, do in watched.items():
            setattr(Engine, name, do)


def _engine_microseconds(stage: Stage) -> float:
    """Return the CPU time of the engine's main thread so far, including its sockets and its append-only file."""
    found: Any = stage.bare.info("cpu")
    return float(found["used_cpu_user_main_thread"] + found["used_cpu_sys_main_thread"]) * 1e6


def _measure(stage: Stage, what: str, times: int, work: Callable[[], object], before: Callable[[], object]) -> Spent:
    """Measure an operation that `work` does `times` times, in several rounds after a warm-up round."""
    taken: list[Spent] = []
    for _ in range(ROUNDS + 1):
        before()
        gc.collect()
        worked = _engine_microseconds(stage)
        with _watched() as seconds:
            begin = time.perf_counter()
            work()
            total = time.perf_counter() - begin
        worked = _engine_microseconds(stage) - worked
        taken.append(Spent(what, total / times * 1e6, sum(seconds) / times * 1e6, worked / times))
    return Spent(what, *(median(column) for column in list(zip(*taken[1:], strict=True))[1:]))


def _nothing() -> None: ...


def measure(stage: Stage, sizes: Sizes) -> list[Spent]:
    """Measure the basic operations."""
    bus = stage.bus("stages")
    page, items = bus.page(), [given(number) for number in range(sizes.adds)]
    page.add(**items[0])
    time.sleep(1.1)  # for a second after the first addition to a log, a process is careful
    read = bus.page("read")
    fill(read, 100)
    catch_up(bus)
    folding = stage.bus("folding")
    fill(folding.page(), sizes.backlog)
    numbers = iter(range(1_000_000))

    def forget() -> None:
        stage.forget_folded(folding)

    def deliver() -> None:
        ack_each(folding, f"stages-{next(numbers)}", sizes.backlog)

    ready = [NewObservation(**item) for item in items[:500]]
    return [
        _measure(stage, "page.add", len(items), lambda: add_each(page, items), _nothing),
        _measure(stage, "add_many of 500, each", len(ready), lambda: page.add_many(ready), _nothing),
        _measure(stage, "active(), 100 open", 100, lambda: [read.active(limit=None) for _ in range(100)], _nothing),
        _measure(stage, "fold and commit, each", sizes.backlog, lambda: catch_up(folding), forget),
        _measure(stage, "delivery and ack, each", sizes.backlog, deliver, _nothing),
    ]


def ping(stage: Stage, times: int = 2_000) -> float:
    """Return the microseconds of a `PING` and its reply, directly on the socket."""
    command = pack_command(("PING",))
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(stage.socket))
        begin = time.perf_counter()
        for _ in range(times):
            link.sendall(command)
            link.recv(64)
        return (time.perf_counter() - begin) / times * 1e6


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Small sizes.")
def main(quick: bool) -> None:
    """Show where the time of the basic operations goes, in microseconds."""
    with open_stage() as stage:
        rows, limit = measure(stage, QUICK if quick else FULL), ping(stage)
    table = Table("what", "in all", "Python", "engine", "sockets, wake-ups, driver", box=None, header_style="")
    for row in rows:
        figures = (row.total, row.python, row.engine, row.between)
        table.add_row(row.what, *(f"{figure:,.1f}" for figure in figures))
    console = Console()
    console.print(table)
    console.print(f"microseconds; a PING over the same socket takes {limit:.0f}")


if __name__ == "__main__":
    main()
