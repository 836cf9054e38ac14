"""`make bench-idle`: what processes cost while nothing happens: commands, wake-ups and CPU time, a minute."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from tests.benchmarks.stage import ROOT, Stage, catch_up, fill, ignore_settings, open_stage
from tests.waiting import eventually

_BUS = "idle"
_WARM_UP = 6.0  # seconds after a start in which the first reads end
_QUIET = 50e6  # nanoseconds of CPU time in such a time, after which a process has started

_PROGRAM = """
import sys, threading
from scratchbus import Bus
bus = Bus.connect(sys.argv[1], bus=sys.argv[2])
exec(sys.argv[3])
threading.Event().wait()
"""

_COMMANDS = {
    "up": ("up",),
    "run projector": ("run", "projector"),
    "run expirer": ("run", "expirer"),
    "watch": ("watch",),
    "serve": ("serve", "--listen", "0", "--no-open"),
    "mcp": ("mcp", "--agent", "bench"),
}
_PROGRAMS = {
    "a view": "view = bus.view().__enter__()",
    "10 views": "views = [bus.view().__enter__() for _ in range(10)]",
    "a subscription": "bus.subscribe('s').run(print)",
    "work without jobs": "bus.work('w', types=['reminder']).run(print)",
}


class Spent(NamedTuple):
    """What a process has taken so far: calls of commands, wake-ups, and nanoseconds of CPU time."""

    commands: int
    wakeups: int
    cpu: int

    @classmethod
    def of(cls, stage: Stage, pid: int) -> Spent:
        """Read it. All commands are those of the process, except this one and those within scripts."""
        stats: Any = stage.bare.info("commandstats")
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        words = [(task / "status").read_text().split() for task in tasks]
        return cls(
            sum(each["calls"] for name, each in stats.items() if name != "cmdstat_info"),
            sum(int(found[found.index("voluntary_ctxt_switches:") + 1]) for found in words),
            sum(int((task / "schedstat").read_text().split()[0]) for task in tasks),
        )


def measure(stage: Stage, command: tuple[str, ...], seconds: float) -> tuple[float, float, float]:
    """Return the commands, wake-ups and milliseconds of CPU time that an idle process takes in a minute."""
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            last = -_QUIET
            while (cpu := Spent.of(stage, process.pid).cpu) - last > _QUIET or not cpu:
                last = cpu
                time.sleep(_WARM_UP)
            before, begin = Spent.of(stage, process.pid), time.monotonic()
            time.sleep(seconds)
            after, minutes = Spent.of(stage, process.pid), (time.monotonic() - begin) / 60
        finally:
            process.terminate()
            eventually(lambda: process.poll() is not None)
    commands, wakeups, cpu = (now - then for now, then in zip(after, before, strict=True))
    return commands / minutes, wakeups / minutes, cpu / 1e6 / minutes


@click.command()
@click.option("--seconds", default=30.0, show_default=True, help="How long each process is watched.")
@click.option("--only", multiple=True, help="Only these processes.")
def main(seconds: float, only: tuple[str, ...]) -> None:
    """Measure idle processes on a page of 100 open observations, one after another on the same engine."""
    ignore_settings()
    table = Table("process", "commands a minute", "wake-ups a minute", "CPU time a minute, ms")
    with open_stage() as stage:
        bus = stage.bus(_BUS)
        fill(bus.page(), 100)
        catch_up(bus)
        cli = (sys.executable, "-m", "scratchbus.cli", "--url", stage.url, "--bus", _BUS)
        python = (sys.executable, "-c", _PROGRAM, stage.url, _BUS)
        commands = {name: (*cli, *words) for name, words in _COMMANDS.items()}
        commands |= {name: (*python, code) for name, code in _PROGRAMS.items()}
        for name, command in commands.items():
            if not only or name in only:
                table.add_row(name, *(f"{each:,.0f}" for each in measure(stage, command, seconds)))
    Console().print(table)


if __name__ == "__main__":
    main()
