"""Durations and moments as people write them: ``2 h``, ``5 minutes``, ``PT1H``, ``14:02``, ``yesterday``, ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Final

UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""The milliseconds of each unit."""

_WORDS = {
    "ms": ("millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
    "w": ("week", "weeks"),
}
_MS = UNITS | {word: UNITS[unit] for unit, words in _WORDS.items() for word in words}
_PART = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+)(?: ?, ?| and | )?")
_ISO = re.compile(r"p(?=.)(?:(\d+)w)?(?:(\d+)d)?(?:t(?=.)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?)?")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}


class NamedMoment(datetime):
    """A time given as a text such as ``2h``, which means another time later.

    A retry repeats the text, so a digest of arguments contains the text instead of the time.
    """

    text: str

    @classmethod
    def of(cls, moment: datetime, text: str) -> NamedMoment:
        """Return a time with the text that named it."""
        named = cls.combine(moment.date(), moment.timetz())
        named.text = text
        return named


def settle(moment: Any) -> Any:
    """Return a value; a NamedMoment becomes a plain datetime, as events store it."""
    return datetime.combine(moment.date(), moment.timetz()) if isinstance(moment, NamedMoment) else moment


def is_iso(text: str) -> bool:
    """Return whether a text is ISO 8601, and so names the same time whenever it is read."""
    try:
        datetime.fromisoformat(text.strip())
    except ValueError:
        return False
    return True


@lru_cache
def read_duration(text: str) -> float | None:
    """Return the milliseconds of ``1h30m``, ``5 minutes``, ``PT1H`` or a number of seconds; None for any other text."""
    text = " ".join(text.lower().split())
    if text.replace(".", "", 1).isdecimal():
        return float(text) * 1000
    if match := _ISO.fullmatch(text):
        return sum(float(count or 0) * UNITS[unit] for count, unit in zip(match.groups(), "wdhms", strict=True))
    ms, at = 0.0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _MS:
            return None
        ms, at = ms + float(part[1]) * _MS[part[2]], part.end()
    return ms if text and text[-1].isalpha() else None


def read_moment(text: str, now: datetime, *, ahead: bool = False) -> datetime | None:
    """Return the time that a text names at `now`; None if it names none.

    ``10m ago`` and ``in 10m`` have a direction; ``10m`` is in the past, or in the future if `ahead`. A clock time
    without a day is the previous one, or the next if `ahead`; a day without a clock time is its midnight. These are in
    the local time zone. ISO 8601 without a zone is returned without one, which means UTC.
    """
    normalized = " ".join(text.lower().split())
    if normalized == "now":
        return now
    day, _, rest = normalized.partition(" ")
    if day in _DAYS:
        return _on_day(now, _DAYS[day], rest.removeprefix("at "))
    if clock := _CLOCK.fullmatch(normalized):
        candidate = _at_clock(now, 0, clock)
        is_wrong_side = candidate <= now if ahead else candidate > now
        return _at_clock(now, 1 if ahead else -1, clock) if is_wrong_side else candidate
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return _relative(now, normalized, ahead)


def _relative(now: datetime, text: str, ahead: bool) -> datetime | None:
    """Return the time that is a duration before or after `now`; None if the text is not a duration."""
    length = text.removesuffix(" ago").removeprefix("in ")
    ahead = ahead if length == text else text.startswith("in ")
    ms = None if length.isdecimal() else read_duration(length)
    if ms is None:
        return None
    try:
        return now + timedelta(milliseconds=ms if ahead else -ms)
    except OverflowError:
        return None


def _on_day(now: datetime, days: int, clock: str) -> datetime | None:
    match = _CLOCK.fullmatch(clock or "0:00")
    return None if match is None else _at_clock(now, days, match)


def _at_clock(now: datetime, days: int, clock: re.Match[str]) -> datetime:
    """Return the given clock time in the local time zone, `days` after the day of `now`."""
    day = now.astimezone().date() + timedelta(days=days)
    hour, minute, second = (int(part or 0) for part in clock.groups())
    return datetime.combine(day, time(hour, minute, second)).astimezone(UTC)
