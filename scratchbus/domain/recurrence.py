"""When something recurs: by an interval, or by a line of cron."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scratchbus.domain.values import duration_ms, millis, moment
from scratchbus.errors import InvalidField, InvalidTTL, shown

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger

LEAST_MS = 1_000
"""The shortest interval."""

_FIELDS = 5  # of a line of cron


def check_every(text: object) -> str:
    """Return the text if it says how often something recurs. Raises InvalidField."""
    if isinstance(text, str):
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
    """Return the first slot (ms) after a time, of those that an interval counts from `slot`; cron is in UTC.

    Raises InvalidTTL or ValueError for what is neither an interval nor cron.
    """
    if len(every.split()) == _FIELDS:
        found = _cron(every).get_next_fire_time(None, moment(after + 1))
        if found is None:
            raise ValueError("it never comes")
        return millis(found.astimezone(UTC))
    interval = duration_ms(every)
    if interval is None or interval < LEAST_MS:
        raise ValueError("too short, or never")
    return slot + max(0, (after - slot) // interval + 1) * interval


def first_slot(every: str, now: datetime, start: datetime | None) -> int:
    """Return the first slot (ms): an interval from now, or at `start`; with cron the next that is not before it."""
    if len(every.split()) == _FIELDS or start is None:
        begin = millis(now if start is None else start)
        return next_slot(every, begin, begin if start is None else begin - 1)
    return millis(start)


def _cron(every: str) -> CronTrigger:
    from apscheduler.triggers.cron import CronTrigger  # late: few observations recur

    return CronTrigger.from_crontab(every, timezone=UTC)
