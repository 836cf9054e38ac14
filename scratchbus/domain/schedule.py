"""Rules for observations that are not active yet: scheduled for later, blocked by others, or recurring."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from scratchbus.domain.recurrence import first_slot
from scratchbus.domain.times import NamedMoment
from scratchbus.domain.values import millis, moment
from scratchbus.errors import InvalidField, InvalidTTL


class Schedulable(Protocol):
    """The part of an observation, in any form, that these rules use."""

    @property
    def not_before(self) -> datetime | None:
        """The time at which it becomes active, or may be picked as work again."""

    @property
    def remind_at(self) -> datetime | None:
        """The time at which it falls due."""

    @property
    def every(self) -> str | None:
        """How often a new one like it is added."""

    @property
    def blocked_by(self) -> Collection[str]:
        """The ids of the observations that must close before it is active."""


_LAST_YEAR = 9000
"""The last year in which something may start: the calendar ends with 9999, a lifetime is up to 100 years long."""

_TIMES = ("not_before", "remind_at", "expires_at")

Each = TypeVar("Each", bound=Schedulable)


def start_of(now: datetime, argument: Callable[[str], Any]) -> datetime | None:
    """Return when an observation becomes active, or when the first one of a recurring one is added; None for now."""
    start, every = argument("not_before"), argument("every")
    if start is None and every is None:
        return None
    check_start(start)
    incompatible = ("remind_at", "remind_on") if every is None else ("remind_at", "remind_on", "blocked_by", "ttl")
    for other in incompatible:
        if argument(other):
            name = "not_before" if every is None else "every"
            explanation = (
                "each gets the ttl of its type" if other == "ttl" else "a scheduled observation does not support it"
            )
            raise InvalidField(other, f"cannot be given together with {name}: {explanation}; leave one of them out")
    return moment(millis(start) if every is None else first_slot(every, now, start))


def varying_times(given: Mapping[str, Any]) -> frozenset[str]:
    """Return the time fields among arguments that a retry, some time later, may compute otherwise."""
    varying = {name for name, value in given.items() if isinstance(value, NamedMoment)}
    if "not_before" in given or "every" in given:
        varying |= {name for name in _TIMES if name not in given}
    return frozenset(varying)


def check_start(start: datetime | None) -> None:
    """Raise InvalidField for a start after which the calendar may end before a lifetime or the next slot does."""
    if start is not None and start.year > _LAST_YEAR:
        raise InvalidField("not_before", f"{start.isoformat()} is too late; give a time up to the year {_LAST_YEAR}")


def end_after(
    start: datetime, now: datetime, ttl: int | None, end: datetime | None, *, recurs: bool
) -> datetime | None:
    """Return when a scheduled observation expires, its ttl counted from its start; a recurring one expires at `end`."""
    if end is not None and end <= start:
        raise InvalidTTL(f"expires_at: {end.isoformat()} is not after {start.isoformat()}, when it becomes active")
    return end if recurs or ttl is None else max(start, now) + timedelta(milliseconds=ttl)


def blockers_in_head(id: str, every: str | None, blocked_by: Collection[str] | None) -> Collection[str] | None:
    """Return the blockers of an observation as stored in its head; a recurring one is blocked by itself."""
    return blocked_by if every is None else [id]


def is_scheduled(observation: Schedulable) -> bool:
    """Return whether an observation is to become active later, or recurs and is never active itself."""
    start = observation.not_before  # differs from `remind_at` if it is only the end of a job's backoff
    return observation.every is not None or (start is not None and start == observation.remind_at)


def unblocked(observations: Iterable[Each], is_open: Callable[[str], bool]) -> Iterator[Each]:
    """Yield the observations without open blockers; `is_open` says whether an id of the page is open."""
    return (each for each in observations if not each.blocked_by or not any(map(is_open, each.blocked_by)))
