"""Checks of times and positions in callers' arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from scratchbus.domain.position import BusPosition, Position
from scratchbus.domain.times import NamedMoment, is_iso, read_moment, settle
from scratchbus.domain.values import Moment
from scratchbus.errors import InvalidField, InvalidPosition, InvalidTTL, shown

TIMES = '14:02, yesterday 14:02, "10m ago", "in 2h", or ISO 8601, such as 2026-01-31T12:00:00Z'
"""The forms of a time, for error messages."""


def as_time(field: str, value: object, *, ahead: bool = False) -> datetime:
    """Return a time in UTC, rounded down to the millisecond; a naive time counts as UTC. Raises InvalidField.

    A text is read by `read_moment`, by the clock of this machine; the result is a `NamedMoment` unless it is ISO 8601.
    """
    text, value = "", settle(value)
    if isinstance(value, str):
        text, value = value, read_moment(value, datetime.now(UTC), ahead=ahead)
        if value is None:
            raise InvalidField(field, f"{shown(text)} is not a time; write {TIMES}")
    if not isinstance(value, datetime):
        raise InvalidField(field, f"{shown(value)} is not a time; give a datetime, or a text: {TIMES}")
    try:
        value = (value.replace(tzinfo=UTC) if value.tzinfo is None else value).astimezone(UTC)
    except OverflowError:
        raise InvalidField(field, f"{value} is beyond the years 1 to 9999") from None
    if value.year < 1970:
        raise InvalidField(field, f"{value.isoformat()} is before 1970")
    value = value.replace(microsecond=value.microsecond // 1000 * 1000)
    return NamedMoment.of(value, text) if text and not is_iso(text) else value


When = BusPosition | Position | Moment
"""A point in the log: a position or its text, or a time."""


def as_when(when: When, field: str = "when") -> BusPosition | Position | datetime:
    """Return a position, or a time in UTC. Raises InvalidPosition."""
    if isinstance(when, str):
        try:
            return BusPosition.parse(when) if "," in when else Position.parse(when)
        except InvalidPosition:
            pass  # it is a time
    if isinstance(when, BusPosition | Position):
        return when
    try:
        return as_time(field, when)
    except InvalidField:
        problem = f"write {TIMES}; or a position, as <ms>-<seq> or <shard>/<ms>-<seq>"
        raise InvalidPosition(
            f"{field}: {shown(when)} is neither a position nor a time since 1970; {problem}"
        ) from None


def as_future(field: str, value: object) -> datetime:
    """Return a time as `as_time` does; ``"2h"`` means two hours from now, and ``"14:02"`` the next one."""
    return as_time(field, value, ahead=True)


def check_end(end: datetime, now: datetime) -> datetime:
    """Return the time at which an observation expires. Raises InvalidTTL if it is more than a second before now."""
    if end <= now - timedelta(seconds=1):
        raise InvalidTTL(f"expires_at: {end.isoformat()} is in the past; give a later time, or leave it out")
    return settle(end)  # type: ignore[no-any-return]  # a datetime too
