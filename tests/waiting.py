"""Waiting for what another process or thread does, with an end to patience."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], within: float = 10.0) -> None:
    """Return once the condition holds; fail when it does not within this many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {within} s"
        time.sleep(0.01)
