"""Checks of small values: names, sources, durations, ids, confidences."""

import math
import string
from datetime import timedelta
from http import HTTPStatus

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
    check_whole,
    delay_ms,
    duration_ms,
    duration_seconds,
    duration_text,
    is_type_name,
    page_of_agent,
    page_of_scope,
    page_of_session,
    page_of_store,
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
    "36500d": 36_500 * 86_400_000,
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


def test_a_missing_source_error_says_where_to_give_it():
    hint = r" \(pass source=, or Bus.connect\(source=…\)\)$"
    for value, field in ((None, "source"), ("a b", "source"), (None, "by")):
        with pytest.raises(InvalidSource, match=hint):
            check_source(value, field)
    with pytest.raises(InvalidSource, match=r"^by: 'a b' is not a valid name; .* starting with a letter or digit$"):
        check_source("a b", "by")


@pytest.mark.parametrize(
    ("page_of", "prefix", "maximum"),
    [
        (page_of_session, "session:", 120),
        (page_of_agent, "agent:", 120),
        (page_of_scope, "knowledge:", 118),
        (page_of_store, "store:", 120),
    ],
)
def test_a_name_of_memory_is_part_of_a_page_name(page_of, prefix, maximum):
    assert page_of("a" * maximum) == check_page(prefix + "a" * maximum)
    for wrong in ("", "a b", "a" * (maximum + 1), None, 5):
        with pytest.raises(InvalidName, match=f"is not a name; use 1–{maximum} letters"):
            page_of(wrong)


def test_seconds_of_a_duration_may_be_a_fraction_or_infinite():
    assert duration_seconds("250ms", "timeout") == 0.25
    assert duration_seconds("never", "timeout") == math.inf


def test_an_id_is_a_ulid_in_any_case():
    id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert check_id(id) == check_id(id.lower()) == id
    short = id.replace("SV", "")
    for wrong in (
        "", id[:-1], id + "A", "8" + id[1:], id[:-1] + "U", id[:-1] + "é", id.replace("S", "\u017f"), f"{short}\xdf",
        None, 5, b"x",
    ):  # fmt: skip
        with pytest.raises(InvalidId, match="ids are ULIDs of 26 characters"):
            check_id(wrong)


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=200))
def test_an_event_id_is_any_printable_ascii_without_spaces(text):
    assert check_event_id(text) == text


@pytest.mark.parametrize("text", ["", "a b", "a\n", "é", "x" * 201, None, 5, b"x"])
def test_any_other_event_id_is_refused(text):
    with pytest.raises(InvalidId, match=r"event_id: .* is not an event id; use 1–200 printable ASCII"):
        check_event_id(text)


@pytest.mark.parametrize("value", [0, 11, True, 1.0, "1", None, [], 10**5_000], ids=lambda value: type(value).__name__)
def test_a_whole_number_has_bounds_and_is_no_other_kind_of_number(value):
    assert [check_whole("limit", each, 1, 10) for each in (1, 10)] == [1, 10]
    with pytest.raises(InvalidField, match=r"limit: .* is not a whole number from 1 to 10; use fewer$"):
        check_whole("limit", value, 1, 10, advice="use fewer")


def test_a_whole_number_of_a_subclass_becomes_plain():
    assert type(check_whole("limit", HTTPStatus.OK)) is int


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
