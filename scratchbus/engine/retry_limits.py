"""The limits of retries and the delays between them."""

from __future__ import annotations

import os
from random import Random

READ_TRIES = 3
"""The number of times that a read is sent before the engine counts as unreachable."""

RECOVERY_SECONDS = 10.0
"""The time in seconds to look for a lost reply, and to wait for a failover."""

JITTER = Random()
"""A generator for delays and samples, which are no secret.

That of the module `random` belongs to the program, which may have seeded it.
"""

os.register_at_fork(after_in_child=JITTER.seed)  # else all children wait for the same times


def contention(attempt: int) -> float:
    """Return a jittered delay in seconds, up to 0.1 s, before a write is decided again because another was faster."""
    return JITTER.uniform(0, min(0.1, 0.002 * (attempt + 1)))


def backoff(attempt: int) -> float:
    """Return a jittered delay in seconds that doubles from 20 ms up to 1 s."""
    return float(min(1.0, 0.02 * 2**attempt)) * JITTER.uniform(0.5, 1.0)
