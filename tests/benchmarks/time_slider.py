"""The time slider: a page at moments of a long log, read over HTTP."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from statistics import median

from scratchbus import Bus, NewObservation
from scratchbus.errors import PageFull
from scratchbus.scheduling.expiry import sweep
from tests import launcher
from tests.benchmarks.http_api import Client, served
from tests.benchmarks.stage import ROOT, Stage, given

OPEN = 100
"""The room of the page: the default."""

LIMIT = 20
BATCH = 50
MOMENTS = 100
RECENT = 100
"""A recent moment is in the last 1/RECENT of the time of the log."""


def time_slider(stage: Stage, size: int) -> list[tuple[str, float]]:
    """Measure `?at=` in a log of `size` events of observations that soon expire; return seconds by request."""
    bus = stage.bus(f"slider-{size}", OPEN)
    with _projector(stage.url, bus):
        _write(bus, size)
    first, last = next(iter(bus.events())).ms, round(time.time() * 1000)
    chosen = random.Random(7)
    with served(stage.url, bus.core.log.bus) as (port, _), Client(port) as client:
        _ask(client, last)
        return [
            (name, median(_ask(client, last - chosen.random() * (last - first) / part) for _ in range(MOMENTS)))
            for name, part in ((f"GET active?at= in the last {RECENT}th", RECENT), ("GET active?at= anywhere", 1))
        ]


def _ask(client: Client, ms: float) -> float:
    """Return the seconds that it takes to read the page as of a moment."""
    when = datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")
    begun = time.perf_counter()
    client.get(f"/api/v1/pages/main/active?limit={LIMIT}&at={when}", 1)
    return time.perf_counter() - begun


def _write(bus: Bus, size: int) -> None:
    """Write `size` events: half of them additions, half expiries."""
    page, written, number = bus.page(), 0, 0
    while written < size:
        items = [NewObservation(**given(number + each), ttl=f"{5 + each}ms") for each in range(BATCH)]
        try:
            page.add_many(items)
            number, written = number + BATCH, written + BATCH
        except PageFull:
            time.sleep(0.002)  # until some have expired
        written += bus.converse(sweep(bus.core))


@contextmanager
def _projector(url: str, bus: Bus) -> Iterator[None]:
    """Run a projector, which keeps snapshots, until it has folded everything."""
    command = launcher.command("-m", "scratchbus.cli", "--url", url, "--bus", bus.core.log.bus, "run", "projector")
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            yield
            while any(status.lag for status in bus.status().shards):
                time.sleep(0.1)
        finally:
            process.terminate()
