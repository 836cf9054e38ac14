"""What a consumer asks for, and whether it can be had."""

from __future__ import annotations

from typing import NamedTuple

from scratchbus.domain.position import BusPosition, Position
from scratchbus.domain.values import Duration, check_page, check_whole, duration_ms
from scratchbus.errors import InvalidName, shown


class Terms(NamedTuple):
    """What a consumer asks for: where a new name begins, how often an event is tried, for how long it is held.

    `retry_delay` is that after the first failure; it doubles with each.
    """

    after: BusPosition | Position | str | None = None
    reset: bool = False
    max_attempts: int = 5
    retry_delay: Duration = "1s"
    handler_timeout: Duration = "5m"


def check_name(name: str) -> str:
    """Return the name of a subscription if it is one. Raises InvalidName."""
    try:
        return check_page(name)
    except InvalidName:
        raise InvalidName(f"subscription: {shown(name)} is not a name; use 1–128 letters, digits and _.@/:-") from None


def seconds(field: str, duration: Duration) -> float:
    """Return a length of time in seconds; never is infinite. Raises InvalidTTL."""
    ms = duration_ms(duration, field)
    return float("inf") if ms is None else ms / 1000


def check_attempts(most: object) -> int:
    """Return how often something is tried. Raises InvalidField."""
    return check_whole("max_attempts", most)
