"""Recurrence by an interval or by a cron expression."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from scratchbus.domain.recurrence import check_every, first_slot, next_slot
from scratchbus.domain.values import millis
from scratchbus.errors import InvalidField, TooLarge


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


@pytest.mark.parametrize("every", ["1s", "1 Hour and 30 Minutes", "0 3 * * mon-fri"])
def test_an_interval_or_cron_is_kept_as_given(every: str) -> None:
    assert check_every(every) == every


@pytest.mark.parametrize("every", ["999ms", "never", "often", "0 3 * *", "0 3 * * someday", "", 60, None])
def test_any_other_recurrence_is_refused(every: object) -> None:
    with pytest.raises(InvalidField, match=r"every: .* is neither an interval of at least 1s") as refused:
        check_every(every)
    assert refused.value.field == "every"


@pytest.mark.parametrize("every", ["0," * 120 + "0 0 * * *", "1h" + " 0s" * 84])
def test_a_recurrence_has_at_most_256_characters(every: str) -> None:
    assert check_every(every.ljust(256)) == every.ljust(256)
    with pytest.raises(TooLarge, match="every: 257 characters is over the limit of 256"):
        check_every(every.ljust(257))


def test_slots_of_an_interval_are_counted_from_one_slot() -> None:
    slot, minute = 1_000_000, 60_000
    assert next_slot("1m", slot, slot - 1) == next_slot("1m", slot, 0) == slot
    assert next_slot("1m", slot, slot) == next_slot("1m", slot, slot + minute - 1) == slot + minute
    assert next_slot("1m", slot, slot + 10 * minute) == slot + 11 * minute


def test_the_first_slot_is_the_start_or_an_interval_from_now() -> None:
    now, later = (datetime(2026, 3, 4, hour, tzinfo=UTC) for hour in (12, 15))
    assert first_slot("1h", now, None) == millis(now) + 3_600_000
    assert first_slot("1h", now, later) == millis(later)


def test_the_first_slot_of_cron_is_never_before_the_start() -> None:
    now, later = (datetime(2026, 3, 4, hour, tzinfo=UTC) for hour in (12, 15))
    assert first_slot("0 * * * *", now, None) == millis(now) + 3_600_000
    assert first_slot("0 * * * *", now, later) == millis(later)
    assert first_slot("30 * * * *", now, later) == millis(later) + 1_800_000


def test_a_start_just_after_a_slot_of_cron_begins_with_the_next_one() -> None:
    noon = datetime(2026, 3, 4, 12, tzinfo=UTC)
    start = noon.replace(microsecond=1_000)
    assert first_slot("0 * * * *", noon, start) == millis(noon) + 3_600_000
