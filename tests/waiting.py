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
