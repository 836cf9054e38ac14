"""The limits of retries and the delays between them."""

from __future__ import annotations

import random

READ_TRIES = 3
"""The number of times that a read is sent before the engine counts as unreachable."""

RECOVERY_SECONDS = 10.0
"""The time in seconds to look for a lost reply, and to wait for a failover."""


def backoff(attempt: int) -> float:
    """Return a jittered delay in seconds that doubles from 20 ms up to 1 s."""
    return float(min(1.0, 0.02 * 2**attempt)) * random.uniform(0.5, 1.0)  # jitter, not a secret
