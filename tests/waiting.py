"""Waiting for what another process or thread does, with an end to patience."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 30.0
"""Seconds for something to happen on a busy machine."""


def eventually(condition: Callable[[], object], what: str = "what was waited for", within: float = PATIENCE) -> None:
    """Return once the condition holds; fail when it does not within this many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.01)


def slowness() -> float:
    """Return how many times slower than usual the machine is at the moment, 1 at least: shared ones vary by two."""
    begun, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return max(1.0, (time.process_time() - begun) / 0.06)
