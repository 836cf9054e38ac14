"""Waiting for a condition, with a deadline."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], what: str, seconds: float = 15.0) -> None:
    """Return once the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)
