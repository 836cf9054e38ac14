"""The urgency of observations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from scratchbus.domain.observation import Observation
from scratchbus.errors import InvalidField

HALF_LIFE = timedelta(days=1)
"""Without news for this long, an observation is half as urgent."""

_REMAINING_DOUBT = 0.8  # the share of the gap to 100 that remains when the sightings double


def urgency(observation: Observation, now: datetime, half_life: timedelta = HALF_LIFE) -> float:
    """Return how urgent an observation is at a time, from 0 to 100.

    Urgency starts at the priority of the type times the confidence. Each doubling of the sightings closes a fifth of
    the gap to 100; each half-life since the last change halves the result.

    Raises InvalidField unless the half-life is positive.
    """
    _check(half_life)
    base = observation.priority / 100 * observation.confidence
    if base == 0:
        return 0.0
    doubt = (1 - base) * math.pow(_REMAINING_DOUBT, math.log2(max(1, observation.occurrences)))
    age = max(timedelta(0), now - observation.updated_at)
    return 100 * (1 - doubt) * math.exp2(-(age / half_life))


def by_urgency(
    observations: Iterable[Observation], now: datetime, half_life: timedelta = HALF_LIFE
) -> list[tuple[float, Observation]]:
    """Return pairs of urgency and observation, the most urgent first; among equals, the oldest first.

    Raises InvalidField unless the half-life is positive.
    """
    _check(half_life)  # also if there are no observations
    ranked = [(urgency(observation, now, half_life), observation) for observation in observations]
    return sorted(ranked, key=lambda pair: (-pair[0], pair[1].added))


def _check(half_life: timedelta) -> None:
    if half_life <= timedelta(0):
        raise InvalidField("half_life", f"{half_life} is not above 0; give a time such as timedelta(days=1)")
