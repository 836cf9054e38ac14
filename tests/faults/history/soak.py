"""Measure memory and disk while all roles work at a moderate rate for a long time, without faults."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.benchmarks.processes import resident
from tests.faults.history.arena import Arena
from tests.faults.history.case import Case, Violation
from tests.faults.history.judge import judge_end
from tests.faults.history.older import Older
from tests.faults.history.round import Cast, short_directory
from tests.faults.processes import Crew

PACE = 10.0
"""The factor by which pauses of processes are longer than in a round."""

_MB = 1e6


class Limits(NamedTuple):
    """Limits in MB: for the memory of each process and engine, and for the disk use of engines and archive."""

    memory: float
    disk: float


Series = dict[str, list[tuple[float, float]]]
"""Measurements by name: seconds since the start, and MB."""


def soak(
    seconds: float, seed: int, limits: Limits, tell: Callable[[str], None] = lambda line: None
) -> tuple[Series, list[Violation]]:
    """Run all roles for some seconds; return the measurements and the violations."""
    series: Series = defaultdict(list)
    with (
        short_directory() as directory,
        Arena(seed, directory / "archive") as arena,
        Crew() as crew,
        Older(None) as older_processes,
    ):
        cast = Cast(arena, crew, older_processes, directory, seed, (), pace=PACE)
        cast.start()
        begun, every = time.monotonic(), max(1.0, seconds / 720)
        while (now := time.monotonic() - begun) < seconds:
            for name, size in _measure(cast, arena, directory).items():
                series[name].append((round(now, 1), round(size / _MB, 2)))
            tell(f"{now:.0f} of {seconds:.0f} s, {series['disk'][-1][1]:.0f} MB of disk")
            time.sleep(every)
        left = cast.finish(recover=False)
    return series, [*judge_end(Case(left)), *above_limits(series, limits)]


def above_limits(series: Series, limits: Limits) -> list[Violation]:
    """Return a violation for each series whose median in the last quarter of the time is above its limit."""
    found = []
    for name, samples in series.items():
        limit, quarter = limits.disk if name.startswith("disk") else limits.memory, max(1, len(samples) // 4)
        end = median(size for _, size in samples[-quarter:])
        before = median(size for _, size in samples[-2 * quarter : -quarter] or samples)
        if end > limit:
            evidence = (
                f"{end:,.1f} MB in the last quarter, {before:,.1f} MB in the one before; the limit is {limit:,.1f} MB"
            )
            found.append(Violation("above its limit", name, evidence))
    return found


def summary(series: Series) -> dict[str, dict[str, float]]:
    """Return the first, last and highest value of each series, and its growth per hour in the last half."""
    return {
        name: {
            "first": samples[0][1], "last": samples[-1][1], "most": max(size for _, size in samples),
            "growth per hour": round(_slope(samples[len(samples) // 2 :]) * 3600, 2),
        }
        for name, samples in sorted(series.items())
    }  # fmt: skip


def table(report: dict[str, dict[str, float]]) -> str:
    """Return a summary as lines."""
    heads = ("first", "last", "most", "growth per hour")
    lines = [f"{'MB':<22}" + "".join(f"{head:>17}" for head in heads)]
    return "\n".join(
        lines + [f"{name:<22}" + "".join(f"{row[head]:>17,.1f}" for head in heads) for name, row in report.items()]
    )


def _slope(samples: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line, in MB per second."""
    center, middle = (sum(column) / len(samples) for column in zip(*samples, strict=True))
    spread = sum((t - center) ** 2 for t, _ in samples)
    return sum((t - center) * (size - middle) for t, size in samples) / spread if spread else 0.0


def _measure(cast: Cast, arena: Arena, directory: Path) -> dict[str, float]:
    sizes = {f"memory of {member}": float(resident(pid)) for member, pid in cast.pids().items()}
    engines = {"primary": arena.primary, "replica": arena.replica}
    for name, server in engines.items():
        with server.client() as client:
            sizes[f"memory of {name}"] = float(client.info("memory")["used_memory"])
    parts = {f"disk of {name}": _size(server.directory) for name, server in engines.items()}
    parts["disk of archive"] = _size(directory / "archive")
    return sizes | parts | {"disk": sum(parts.values())}


def _size(directory: Path) -> float:
    """Return the bytes of all files, some of which may disappear meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return float(total)
