"""How long, and how often, something is tried again."""

from __future__ import annotations

import random

READ_TRIES = 3
"""How often a read is sent before the engine counts as unreachable."""

PATIENCE = 10.0
"""For how many seconds a lost reply is looked for, and a failover waited for."""


def backoff(attempt: int) -> float:
    """Return a jittered delay in seconds that doubles from 20 ms up to 1 s."""
    return float(min(1.0, 0.02 * 2**attempt)) * random.uniform(0.5, 1.0)  # jitter, no secret
