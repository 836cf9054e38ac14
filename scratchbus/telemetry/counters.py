"""Counters of this process's work, the source of its metrics.

Threads share them without a lock: each is changed by one statement, which CPython does not interrupt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

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


class Handled:
    """The outcomes of the deliveries of one subscription; `took` is from a delivery to its ack or failure."""

    def __init__(self) -> None:
        self.delivered = self.acked = self.failed = self.dead = 0
        self.took = Durations()


def _by_name() -> defaultdict[str, int]:
    return defaultdict(int)


class Counts:
    """All counters.

    `appended` is by kind of event, `displaced` counts observations displaced from full pages, `refused` and
    `engine_errors` are by class of error, `commits` by outcome, `fallen_due` by the event that time caused,
    `subscriptions` by name, `jobs` by outcome. `missed` events were gone before an expirer had matched them with
    reminders. `tool_calls` and `tool_errors` are by MCP tool. `requests` of the HTTP interface are by method, route and
    status, and `request_took`, until an answer or a stream begins, by the first two; `open_streams` are its streams of
    events.
    """

    def __init__(self) -> None:
        self.appended, self.refused, self.append_took = _by_name(), _by_name(), Durations()
        self.engine_errors, self.displaced = _by_name(), 0
        self.folded, self.commits = 0, _by_name()
        self.sweeps, self.fallen_due, self.missed = 0, _by_name(), 0
        self.subscriptions: defaultdict[str, Handled] = defaultdict(Handled)
        self.jobs = _by_name()
        self.archived = self.trimmed = 0
        self.tool_calls, self.tool_errors, self.tool_took = _by_name(), _by_name(), Durations()
        self.contexts = self.context_tokens = 0
        self.requests: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self.request_took: defaultdict[tuple[str, str], Durations] = defaultdict(Durations)
        self.open_streams = 0


counts = Counts()
"""The counters of this process, over all buses that it opens."""
