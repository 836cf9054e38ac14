"""What keeps an observation from being active: a time that has not come, what it is blocked by, or that it recurs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from scratchbus.domain.recurrence import first_slot
from scratchbus.domain.values import millis, moment
from scratchbus.errors import InvalidField, InvalidTTL


class Schedulable(Protocol):
    """An observation, in whatever form, as these rules look at it."""

    @property
    def not_before(self) -> datetime | None:
        """When it becomes active, or may be picked as work again."""

    @property
    def remind_at(self) -> datetime | None:
        """When it falls due."""

    @property
    def every(self) -> str | None:
        """How often one like it is added."""

    @property
    def blocked_by(self) -> Collection[str]:
        """What has to be closed before it is active."""


Each = TypeVar("Each", bound=Schedulable)


def start_of(now: datetime, given: Callable[[str], Any]) -> datetime | None:
    """Return the moment when it becomes active, or when what recurs is added first; None for now."""
    start, every = given("not_before"), given("every")
    if start is None and every is None:
        return None
    others = ("remind_at", "remind_on") if every is None else ("remind_at", "remind_on", "blocked_by", "ttl")
    for other in others:
        if given(other):
            name = "not_before" if every is None else "every"
            why = "they last as long as their type says" if other == "ttl" else "what is scheduled takes none"
            raise InvalidField(other, f"cannot be given together with {name}: {why}; leave one of them out")
    return moment(millis(start) if every is None else first_slot(every, now, start))


def end_after(
    start: datetime, now: datetime, ttl: int | None, end: datetime | None, *, recurs: bool
) -> datetime | None:
    """Return when something expires whose life begins at its start; what recurs has the end given."""
    if end is not None and end <= start:
        raise InvalidTTL(f"expires_at: {end.isoformat()} is not after {start.isoformat()}, when it becomes active")
    return end if recurs or ttl is None else max(start, now) + timedelta(milliseconds=ttl)


def blockers_in_head(id: str, every: str | None, blocked_by: Collection[str] | None) -> Collection[str] | None:
    """Return by what an observation is blocked as its head says it; what recurs is blocked by itself."""
    return blocked_by if every is None else [id]


def is_scheduled(observation: Schedulable) -> bool:
    """Return whether the time of an observation has not come yet, or it recurs and is never active itself."""
    start = observation.not_before  # what only rests falls due at another time, if at all
    return observation.every is not None or (start is not None and start == observation.remind_at)


def unblocked(observations: Iterable[Each], is_open: Callable[[str], bool]) -> list[Each]:
    """Return the observations that are blocked by nothing that is open; `is_open` tells that of an id of the page."""
    return [each for each in observations if not each.blocked_by or not any(map(is_open, each.blocked_by))]
