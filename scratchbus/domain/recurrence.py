"""Recurrence by an interval or by a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from scratchbus.domain.checks import check_length
from scratchbus.domain.times import read_duration
from scratchbus.domain.values import duration_ms, millis, moment
from scratchbus.errors import InvalidField, InvalidTTL, shown

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger

MIN_MS = 1_000
"""The shortest interval."""

MAX_TEXT = 256
"""The most characters of an interval or a cron expression: each evaluation takes time quadratic in its length."""

_LONGEST_GAP = timedelta(days=366 * 41)
"""Longer than between two slots of any cron expression: a 29 February may be on a certain weekday after 40 years."""

_FIELDS = 5  # of a cron expression


def check_every(text: object) -> str:
    """Return the text if it is an interval or a cron expression. Raises InvalidField, and TooLarge for a long text."""
    if isinstance(text, str):
        check_length("every", text, MAX_TEXT)
        try:
            next_slot(text, 0, 0)
        except (InvalidTTL, ValueError):
            pass
        else:
            return text
    raise InvalidField(
        "every",
        f'{shown(text)} is neither an interval of at least 1s, such as "1h", nor cron, such as "0 3 * * mon-fri"',
    )


def next_slot(every: str, slot: int, after: int) -> int:
    """Return the first slot (ms) after a time; an interval counts its slots from `slot`, and cron is in UTC.

    Raises InvalidTTL or ValueError for a text that is neither an interval nor cron.
    """
    if _is_cron(every):
        trigger, start = _cron(every), moment(after + 1)
        trigger.end_date = start + _LONGEST_GAP  # else a day that never comes is looked for up to the year 9999
        found = trigger.get_next_fire_time(None, start)
        if found is None:
            raise ValueError("it never fires")
        return millis(found.astimezone(UTC))
    interval = duration_ms(every)
    if interval is None or interval < MIN_MS:
        raise ValueError("too short, or never")
    return slot + max(0, (after - slot) // interval + 1) * interval


def first_slot(every: str, now: datetime, start: datetime | None) -> int:
    """Return the first slot (ms): `start`, or one interval from now; with cron, the next one, not before `start`."""
    if start is None or _is_cron(every):
        begin = millis(now if start is None else start)
        return next_slot(every, begin, begin if start is None else begin - 1)
    return millis(start)


def _is_cron(every: str) -> bool:
    """Return whether a text is to be read as cron. "1 hour and 30 minutes" has five words too."""
    return len(every.split()) == _FIELDS and read_duration(every) is None


def _cron(every: str) -> CronTrigger:
    from apscheduler.triggers.cron import CronTrigger  # late: few observations recur

    return CronTrigger.from_crontab(every, timezone=UTC)
