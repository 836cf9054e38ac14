from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from scratchbus.domain.position import BusPosition, Position
from scratchbus.domain.time_checks import as_future, as_time, as_when, check_end
from scratchbus.domain.times import NamedMoment, read_moment
from scratchbus.domain.values import duration_ms
from scratchbus.errors import InvalidField, InvalidPosition, InvalidTTL

NOW = datetime(2026, 3, 4, 15, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200), ("2 h", 7200), (" 2  H ", 7200), ("2 hours", 7200), ("1 hr", 3600), ("5 minutes", 300),
        ("1 min", 60), ("90", 90), ("1.5h", 5400), ("1h30m", 5400), ("1h 30m", 5400), ("1 hour, 30 minutes", 5400),
        ("1 hour and 30 minutes", 5400), ("1w", 604_800), ("2 weeks", 1_209_600), ("3 days", 259_200), ("250ms", 0.25),
        ("PT1H", 3600), ("pt1h30m", 5400), ("P1D", 86_400), ("P1DT12H", 129_600), ("P1W", 604_800), ("PT0.5S", 0.5),
    ],
)  # fmt: skip
def test_durations_have_many_notations(text: str, seconds: float):
    assert duration_ms(text) == seconds * 1000


@pytest.mark.parametrize(
    "text",
    [
        "", "h", "soon", "2 x", "2h30", "h2", "2h and", "2h,", "-2h", "P", "PT", "P1M", "P1Y", "P1DT", "1..5h", "PT1",
        "1.2.3",
    ],
)  # fmt: skip
def test_an_invalid_duration_is_refused(text: str):
    with pytest.raises(InvalidTTL):
        duration_ms(text)
    assert read_moment(text, NOW) is None


def test_a_number_is_a_duration_in_seconds_but_not_a_moment():
    assert duration_ms("2") == 2_000
    assert read_moment("2", NOW) is None


def _here(*args: int) -> datetime:
    return datetime(*args).astimezone()  # type: ignore[arg-type]  # the local time zone is the point


def test_days_and_clock_times_are_local():
    now = _here(2026, 3, 4, 15, 30)
    assert read_moment("yesterday", now) == _here(2026, 3, 3)
    assert read_moment("Yesterday 14:02", now) == _here(2026, 3, 3, 14, 2)
    assert read_moment("today at 9:05:07", now) == _here(2026, 3, 4, 9, 5, 7)
    assert read_moment("tomorrow 9:00", now) == _here(2026, 3, 5, 9)
    assert read_moment("now", now) == now


def test_a_clock_time_is_the_last_one_or_with_ahead_the_next():
    now = _here(2026, 3, 4, 15, 30)
    assert read_moment("14:02", now) == _here(2026, 3, 4, 14, 2)
    assert read_moment("15:31", now) == _here(2026, 3, 3, 15, 31)
    assert read_moment("15:31", now, ahead=True) == _here(2026, 3, 4, 15, 31)
    assert read_moment("14:02", now, ahead=True) == _here(2026, 3, 5, 14, 2)


def test_a_duration_counts_back_or_with_ahead_forward():
    for text in ("1h", "1 hour", "PT1H", "60 minutes ago", "1h ago"):
        assert read_moment(text, NOW) == NOW - HOUR
    for text in ("1h", "PT1H", "in 1 hour"):
        assert read_moment(text, NOW, ahead=True) == NOW + HOUR
    assert read_moment("in 1h", NOW) == NOW + HOUR
    assert read_moment("1h ago", NOW, ahead=True) == NOW - HOUR


@pytest.mark.parametrize(
    "text", ["24:00", "14:60", "yesterday noon", "tomorrow 25:00", "14", "ago", "in", "-5m", "1-2-3", "9999999w"]
)
def test_an_invalid_moment_error_shows_valid_ones(text: str):
    for check in (as_time, as_future):
        with pytest.raises(InvalidField, match=r"since: .* is not a time; write 14:02, yesterday 14:02, .* ISO 8601"):
            check("since", text)
    with pytest.raises(InvalidPosition, match=r"until: .* is neither a position nor a time since 1970; write 14:02"):
        as_when(text, "until")


def test_iso_8601_without_a_zone_is_utc():
    assert as_time("since", "2026-01-31T12:00:00+01:00") == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert as_time("since", "2026-01-31 12:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_a_time_is_rounded_down_to_the_millisecond():
    given = datetime(2026, 1, 31, 12, 0, 0, 123_999, tzinfo=UTC)
    assert as_time("since", given) == datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)


def test_a_time_before_1970_or_beyond_the_calendar_is_refused():
    assert as_time("since", "1970-01-01") == datetime(1970, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidField, match=r"since: 1969-12-31T23:59:59\+00:00 is before 1970"):
        as_time("since", "1969-12-31T23:59:59")
    with pytest.raises(InvalidField, match=r"since: .* is beyond the years 1 to 9999"):
        as_time("since", "9999-12-31T23:00:00-05:00")
    with pytest.raises(InvalidField, match="since: 5 is not a time; give a datetime, or a text: 14:02, "):
        as_time("since", 5)


def test_a_time_given_as_a_text_keeps_it_unless_it_is_iso_8601():
    named = as_future("not_before", "in 2h")
    assert isinstance(named, NamedMoment)
    assert named.text == "in 2h"
    again = as_time("not_before", named)
    assert (type(again), again) == (datetime, named)
    assert type(as_time("since", " 2026-01-31T12:00:00Z ")) is datetime


def test_an_end_may_be_a_second_ago_at_most():
    assert check_end(NOW - timedelta(milliseconds=999), NOW) == NOW - timedelta(milliseconds=999)
    with pytest.raises(InvalidTTL, match=r"expires_at: .* is in the past; give a later time"):
        check_end(NOW - timedelta(seconds=1), NOW)


def test_as_when_accepts_positions_and_moments():
    assert as_when("3/1-2") == Position(1, 2, 3)
    assert as_when("1-2,3-4") == BusPosition((Position(1, 2), Position(3, 4, 1)))
    assert as_when("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)


def test_a_naive_time_is_in_utc_wherever_the_machine_is(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XYZ5")
        time.tzset()
        found = as_time("when", NOW.replace(tzinfo=None)), as_time("when", "2026-03-04T15:30")
    time.tzset()
    assert found == (NOW, NOW)
