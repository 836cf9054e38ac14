"""Counters of the work of this process, from which the metrics are made.

Threads share them without a lock: each is changed by one statement, which CPython does not interrupt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""The upper bounds, in seconds, of the buckets of durations."""


class Durations:
    """A histogram of durations: a count per bound, one for longer durations, and the sum in seconds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration in seconds."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


@dataclass(slots=True)
class Handled:
    """The outcomes of the deliveries of one subscription; `took` is from a delivery to its ack or failure."""

    delivered: int = 0
    acked: int = 0
    failed: int = 0
    dead: int = 0
    took: Durations = field(default_factory=Durations)


def _none() -> defaultdict[str, int]:
    return defaultdict(int)


@dataclass(slots=True)
class Counts:
    """All counters.

    `appended` is by kind of event, `refused` and `engine_errors` by class of error, `commits` by outcome, `fallen_due`
    by what the passing of time caused, `subscriptions` by name, `jobs` by outcome. `missed` events were gone before an
    expirer had checked whether a reminder waits for them. `tool_calls` and `tool_errors` are by MCP tool.
    """

    appended: defaultdict[str, int] = field(default_factory=_none)
    refused: defaultdict[str, int] = field(default_factory=_none)
    append_took: Durations = field(default_factory=Durations)
    engine_errors: defaultdict[str, int] = field(default_factory=_none)
    folded: int = 0
    commits: defaultdict[str, int] = field(default_factory=_none)
    sweeps: int = 0
    fallen_due: defaultdict[str, int] = field(default_factory=_none)
    missed: int = 0
    subscriptions: defaultdict[str, Handled] = field(default_factory=lambda: defaultdict(Handled))
    jobs: defaultdict[str, int] = field(default_factory=_none)
    archived: int = 0
    trimmed: int = 0
    tool_calls: defaultdict[str, int] = field(default_factory=_none)
    tool_errors: defaultdict[str, int] = field(default_factory=_none)
    tool_took: Durations = field(default_factory=Durations)
    contexts: int = 0
    context_tokens: int = 0


counts = Counts()
"""The counters of this process, over all buses that it opens."""
