"""`make bench-soak`: half an hour at half the highest rate of additions, with all processes at work, to find growth.

A projector, an expirer, an archiver, two views and a subscription run in separate processes while one process adds.
Observations expire after 20 s and are paged out after 20 more, so memory has no reason to grow. The first sixth of the
time is the warm-up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from scratchbus import Bus
from tests.benchmarks.measure import percentile
from tests.benchmarks.processes import resident, running
from tests.benchmarks.stage import Stage, given, ignore_settings, open_stage
from tests.benchmarks.svg import Panel, draw

EVERY: Final = 5.0
"""Seconds between two samples."""

GROWTH: Final = 1.05
"""The largest accepted growth of memory after the warm-up."""

DAEMONS: Final = ("projector", "expirer", "archiver")
SETTINGS: Final[dict[str, Any]] = {
    "default_expiration": "20s", "keep_final": "20s", "retain": "30s", "retain_events": 1_000,
    "archive_interval": "10s", "archive_segment": 5_000, "max_observations": 1_000_000,
}  # fmt: skip

Series = dict[str, list[tuple[float, float]]]
"""Samples by name: seconds since the beginning, and the value."""


def soak(stage: Stage, seconds: float, directory: Path) -> Series:
    """Run all processes for `seconds`; return the samples."""
    settings = SETTINGS | {"archive_url": (directory / "archive").as_uri()}
    series: Series = defaultdict(list)
    with ExitStack() as opened:
        bus = opened.enter_context(Bus.connect(stage.url, source="soak", bus="soak", **settings))
        page = bus.page("soak")
        page.add(**given(0))
        pids = {"engine": int(stage.bare.info("server")["process_id"]), "publisher": os.getpid()}
        for name in DAEMONS:
            pids[name] = opened.enter_context(_daemon(name, stage.url, settings, directory))
        for number in (1, 2):
            pids[f"view {number}"] = opened.enter_context(running(_view, stage.url, settings)).receive()
        pids["subscription"] = opened.enter_context(running(_subscription, stage.url, settings)).receive()
        rate = _rate(page, 10.0) / 2
        click.echo(
            f"{rate:,.0f} additions a second, half of what this machine can do with all processes at work", err=True
        )
        begun, number = time.monotonic(), 0
        while (elapsed := time.monotonic() - begun) < seconds:
            samples: list[float] = []
            until = begun + elapsed + EVERY
            while time.monotonic() < until:
                before = time.perf_counter()
                page.add(**given(number))
                samples.append(time.perf_counter() - before)
                number += 1
                time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            now = time.monotonic() - begun
            for name, value in _measure(bus, stage, pids, samples).items():
                series[name].append((now, value))
            if sys.stderr.isatty():
                click.echo(
                    f"\r{now:.0f} of {seconds:.0f} s, lag {series['lag'][-1][1]:,.0f} events ", nl=False, err=True
                )
    if sys.stderr.isatty():
        click.echo(err=True)
    return series


def _rate(page: Any, seconds: float) -> float:
    """Return how many observations one process can add per second."""
    begun, number = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        page.add(**given(number))
        number += 1
    return number / seconds


def _measure(bus: Bus, stage: Stage, pids: Mapping[str, int], samples: list[float]) -> dict[str, float]:
    values = {f"memory of {name}, MB": resident(pid) / 1e6 for name, pid in pids.items()}
    values["engine's data, MB"] = float(stage.bare.info("memory")["used_memory"]) / 1e6
    values["lag"] = float(sum(shard.lag for shard in bus.status().shards))
    values["add p50, ms"] = percentile(samples, 50) * 1e3
    values["add p99, ms"] = percentile(samples, 99) * 1e3
    return values


@contextmanager
def _daemon(name: str, url: str, settings: Mapping[str, Any], directory: Path) -> Iterator[int]:
    """Run a reference daemon; yield its process id."""
    environment = os.environ | {f"SCRATCHBUS_{key.upper()}": str(value) for key, value in settings.items()}
    environment |= {"SCRATCHBUS_URL": url, "SCRATCHBUS_BUS": "soak", "SCRATCHBUS_SOURCE": name}
    with (directory / f"{name}.log").open("w") as log:
        command = [sys.executable, "-m", "scratchbus.cli", "run", name]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait(30)


def _view(pipe: Connection, url: str, settings: Mapping[str, Any]) -> None:
    with Bus.connect(url, source="view", bus="soak", **settings) as bus, bus.view("soak") as view:
        pipe.send(os.getpid())
        for _ in view.changes():
            view.active(limit=5)


def _subscription(pipe: Connection, url: str, settings: Mapping[str, Any]) -> None:
    with Bus.connect(url, source="soak", bus="soak", **settings) as bus, bus.subscribe("soak") as deliveries:
        pipe.send(os.getpid())
        for delivery in deliveries:
            delivery.ack()


def grown(series: Series) -> dict[str, float]:
    """Return the growth of each memory from the first quarter after the warm-up to the last; 1 is no growth."""
    growth = {}
    for name, samples in series.items():
        if "MB" in name:
            values = [value for _, value in samples[len(samples) // 6 :]]
            quarter = max(1, len(values) // 4)
            growth[name] = median(values[-quarter:]) / median(values[:quarter])
    return growth


def charts(series: Series) -> str:
    """Return charts of a soak, as SVG."""
    memories = {name.removesuffix(", MB"): samples for name, samples in series.items() if "MB" in name}
    times = {name.removesuffix(", ms"): samples for name, samples in series.items() if name.endswith("ms")}
    return draw(
        [
            Panel("memory, MB", memories),
            Panel("time of an addition, ms", times),
            Panel("events not yet folded", {"lag": series["lag"]}),
        ]
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", type=float, default=1800.0, show_default=True, help="Duration in seconds.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Where to save the charts as SVG.")
def main(seconds: float, svg: Path | None) -> None:
    """Add at half the highest rate with all processes at work; exit with 1 if a memory grew by more than 5 %."""
    ignore_settings()
    with open_stage() as stage:
        series = soak(stage, seconds, Path(stage.socket).parent)
    growth = grown(series)
    for name, samples in series.items():
        values = [value for _, value in samples[len(samples) // 6 :]]
        change = f"{(growth[name] - 1) * 100:+8.1f} %" if name in growth else ""
        click.echo(f"{name:<28} median {median(values):>10.2f}   most {max(values):>10.2f} {change}")
    if svg is not None:
        svg.parent.mkdir(parents=True, exist_ok=True)
        svg.write_text(charts(series))
        click.echo(f"saved to {svg}", err=True)
    if beyond := [name for name, ratio in growth.items() if ratio > GROWTH]:
        click.echo(f"grew by more than 5 %: {', '.join(beyond)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
