"""Checks of small values: names, sources, durations, ids, confidences."""

import math
import string
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.domain.values import (
    check_bus,
    check_confidence,
    check_event_id,
    check_id,
    check_page,
    check_source,
    delay_ms,
    duration_ms,
    duration_text,
    is_type_name,
)
from scratchbus.errors import InvalidField, InvalidId, InvalidName, InvalidSource, InvalidTTL

DURATIONS = {
    "250ms": 250,
    "90s": 90_000,
    "2h": 7_200_000,
    "1h30m": 5_400_000,
    "1.5h": 5_400_000,
    "7d": 604_800_000,
    "1w": 604_800_000,
    " 2H ": 7_200_000,
    "30": 30_000,
    "0.5": 500,
    30: 30_000,
    0.25: 250,
    timedelta(minutes=1): 60_000,
    timedelta(microseconds=1500): 2,
}
INVALID_DURATIONS = [
    "", "soon", "h", "2 x", "2h ago", "-2h", "1y", "0", 0, -1, 0.0001, "0s", math.nan, math.inf, True, None, [],
    "36501d", 10**12, timedelta(0), timedelta(days=-1), "1e3",
]  # fmt: skip


@pytest.mark.parametrize(("given_", "ms"), DURATIONS.items())
def test_durations_are_parsed(given_, ms):
    assert duration_ms(given_) == ms


@pytest.mark.parametrize("given_", INVALID_DURATIONS, ids=repr)
def test_an_invalid_duration_is_refused_with_examples(given_):
    with pytest.raises(InvalidTTL, match=r'lease: .* is not a valid duration here; use .*"2h"'):
        duration_ms(given_, "lease")


@pytest.mark.parametrize("given_", [0, 0.0, "0", "0s", "0ms", timedelta(0)], ids=repr)
def test_a_delay_can_be_zero(given_):
    assert delay_ms(given_, "delay") == 0


def test_a_delay_is_any_duration():
    assert delay_ms("250ms", "delay") == 250
    assert delay_ms(timedelta(minutes=1), "delay") == 60_000


@pytest.mark.parametrize("given_", ["never", "soon", "", -1, math.nan, math.inf, True, None, "36501d"], ids=repr)
def test_an_invalid_delay_is_refused(given_):
    with pytest.raises(InvalidTTL, match=r"delay: .* is not a time to wait; use 0, a number of seconds"):
        delay_ms(given_, "delay")


def test_the_duration_never_is_none():
    assert duration_ms("never") is duration_ms("NEVER ") is None


@given(st.integers(1, 100 * 365 * 86_400_000))
def test_a_duration_survives_formatting_and_parsing(ms):
    assert duration_ms(duration_text(ms)) == ms


def test_durations_are_formatted_compactly():
    assert [duration_text(ms) for ms in (None, 0, 250, 5_400_000, 604_800_000)] == [
        "never",
        "0s",
        "250ms",
        "1h30m",
        "1w",
    ]


@given(st.text(string.ascii_letters + string.digits + "_.:@/-", min_size=1, max_size=128))
def test_a_source_begins_with_a_letter_or_digit(text):
    assert check_source(f"a{text[1:]}") == f"a{text[1:]}"
    assert check_source(f"7{text[1:]}") == f"7{text[1:]}"
    for sign in "_.:@/-":
        with pytest.raises(InvalidSource):
            check_source(sign + text[1:])


@pytest.mark.parametrize("text", ["", "a b", "ä", "a\n", "a" * 129, "a#b", None, 5, b"a"])
def test_an_invalid_name_is_refused(text):
    for check, error in ((check_source, InvalidSource), (check_page, InvalidName), (check_bus, InvalidName)):
        with pytest.raises(error, match="use 1–128 letters"):
            check(text)


def test_page_names_can_have_colons_but_bus_names_cannot():
    assert check_page("user:42") == "user:42"
    with pytest.raises(InvalidName):
        check_bus("user:42")
    for name in ("-", "a/b", "team@host", "x" * 128):
        assert check_page(name) == check_bus(name) == name


def test_an_id_is_a_ulid_in_any_case():
    id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert check_id(id) == check_id(id.lower()) == id
    for wrong in ("", id[:-1], id + "A", "8" + id[1:], id[:-1] + "U", id[:-1] + "é", None, 5, b"x"):
        with pytest.raises(InvalidId, match="ids are ULIDs of 26 characters"):
            check_id(wrong)


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=200))
def test_an_event_id_is_any_printable_ascii_without_spaces(text):
    assert check_event_id(text) == text


@given(st.floats(0, 1) | st.integers(0, 1))
def test_a_confidence_is_a_number_from_zero_to_one(value):
    assert check_confidence(value) == value
    assert isinstance(check_confidence(value), float)


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, math.inf, True, "0.5", None, [], 1j])
def test_an_invalid_confidence_is_refused(value):
    with pytest.raises(InvalidField, match="is not a number from 0 to 1"):
        check_confidence(value)


def test_type_names_are_lowercase_identifiers():
    assert is_type_name("build_failed2")
    for wrong in ("", "Build", "2fast", "a-b", "a|b", "a" * 65, None, "ä", "a\n"):
        assert not is_type_name(wrong)
