"""Wait for another process or thread, with a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 30.0
"""Default timeout in seconds, for a busy machine."""


def eventually(condition: Callable[[], object], what: str = "the condition", within: float = PATIENCE) -> None:
    """Return once the condition holds; fail if it does not within this many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.01)
