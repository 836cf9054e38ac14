"""How urgent an observation is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from scratchbus.domain.observation import Observation

HALF_LIFE = timedelta(days=1)
"""The time without anything new after which an observation is half as urgent."""

_DOUBT_LEFT = 0.8  # of the doubt, each time the sightings double


def urgency(observation: Observation, now: datetime, half_life: timedelta = HALF_LIFE) -> float:
    """Return from 0 to 100 how urgent an observation is at a time.

    It begins with the priority of the type, times the confidence. Each doubling of the sightings takes away a
    fifth of what is missing to 100, and the time since anything was heard of it halves it again and again.
    """
    base = observation.priority / 100 * observation.confidence
    if base == 0:
        return 0.0
    doubt = (1 - base) * math.pow(_DOUBT_LEFT, math.log2(max(1, observation.occurrences)))
    age = max(timedelta(0), now - observation.updated_at)
    return 100 * (1 - doubt) * math.exp2(-(age / half_life))


def by_urgency(
    observations: Iterable[Observation], now: datetime, half_life: timedelta = HALF_LIFE
) -> list[tuple[float, Observation]]:
    """Return each observation behind its urgency, the most urgent first; of equals the older one."""
    ranked = [(urgency(observation, now, half_life), observation) for observation in observations]
    return sorted(ranked, key=lambda pair: (-pair[0], pair[1].added))
