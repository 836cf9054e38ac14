"""Recurrence by an interval or by a cron expression."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from scratchbus.domain.recurrence import check_every, next_slot
from scratchbus.domain.values import millis
from scratchbus.errors import InvalidField


@pytest.mark.parametrize("every", ["0 0 31 4,6,9,11 *", "0 0 30 2 *"])
def test_a_day_that_never_comes_is_refused_quickly(every: str) -> None:
    check_every("0 0 * * *")  # imports APScheduler
    began = time.process_time()
    with pytest.raises(InvalidField):
        check_every(every)
    assert time.process_time() - began < 0.1


def test_a_weekday_on_a_29_february_may_be_forty_years_away() -> None:
    def ms(year: int, month: int, day: int) -> int:
        return millis(datetime(year, month, day, tzinfo=UTC))

    assert next_slot("0 0 29 2 wed", 0, ms(2096, 2, 29)) == ms(2108, 2, 29)
    slots = [ms(2072, 2, 29)]
    while slots[-1] < ms(2130, 1, 1):
        slots.append(next_slot("0 0 29 2 mon", 0, slots[-1]))
    assert slots[1] == ms(2112, 2, 29)
