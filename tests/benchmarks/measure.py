"""Timing several ways to do one thing side by side, on a machine with other work."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Side:
    """One way to do a thing: `work` does it `times` times. `prepare` runs before each round and is not timed."""

    name: str
    times: int
    work: Callable[[], object]
    prepare: Callable[[], object] | None = None


Taken = dict[str, list[float]]
"""Seconds per operation, by the name of the side, one for each round."""


def interleave(rounds: int, *sides: Side) -> Taken:
    """Time each side once a round, so that load affects all alike; each round begins with another side.

    One more round, before the others, warms up and is not counted.
    """
    taken: Taken = {side.name: [] for side in sides}
    for at in range(rounds + 1):
        first = at % len(sides)
        for side in (*sides[first:], *sides[:first]):
            seconds = _time(side)
            if at > 0:
                taken[side.name].append(seconds / side.times)
    return taken


def _time(side: Side) -> float:
    if side.prepare is not None:
        side.prepare()
    gc.collect()
    begin = perf_counter()
    side.work()
    return perf_counter() - begin


class Spread(NamedTuple):
    """The median of some samples, between their quartiles."""

    low: float
    median: float
    high: float


def spread(samples: Sequence[float]) -> Spread:
    """Return the spread of one or more samples."""
    if len(samples) == 1:
        return Spread(samples[0], samples[0], samples[0])
    low, middle, high = quantiles(samples, n=4, method="inclusive")
    return Spread(low, middle, high)


def pairwise(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread of ours / theirs, divided round by round."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


def percentile(samples: Sequence[float], percent: int) -> float:
    """Return the value that `percent` of two or more samples do not exceed."""
    if percent == 50:
        return median(samples)
    return quantiles(samples, n=100, method="inclusive")[percent - 1]
