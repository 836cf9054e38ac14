"""Arguments of callers are stored in one form, or refused; objects exactly as JSON reads them back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.commands.clear import Clear
from scratchbus.commands.turns import CompactTurns
from scratchbus.domain.checks import (
    check_content,
    check_evidence,
    check_flag,
    check_ids,
    check_label,
    check_limit,
    check_names,
    check_not_blank,
    check_object,
    check_reason,
    check_some,
    check_tags,
    check_text,
    check_trigger,
)
from scratchbus.domain.values import check_memory_id
from scratchbus.errors import InvalidField, InvalidId, InvalidInput, TooLarge

NUMBERS = st.integers() | st.floats() | st.sampled_from([10**15, 10**15 + 1, -(10**15), 1e15, -0.0, math.nan, math.inf])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=20) | st.binary(max_size=2)
OBJECTS = st.dictionaries(st.text(max_size=20) | st.integers(), SCALARS | st.lists(SCALARS, max_size=2), max_size=40)


def as_json(value: dict[Any, Any]) -> str | None:
    """Return an object as strict JSON, or None if JSON cannot represent it."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError):
        return None
    return text if all(isinstance(key, str) for key in value) else None


@given(OBJECTS)
def test_an_object_is_stored_as_json_reads_it_back(value: dict[Any, Any]) -> None:
    text = as_json(value)
    if text is None or any(type(each) is int and len(str(abs(each))) > 308 for each in value.values()):
        with pytest.raises(InvalidInput):
            check_object("context", value)
        return
    assert repr(check_object("context", value)) == repr(json.loads(text))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**309, "\ud800", "\udfff x", {1}, b"x", object()])
def test_a_value_that_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput):
        check_object("context", {"text": "plain", "value": value})
    with pytest.raises(InvalidInput):
        check_object("context", {"text": "plain", "inner": [value]})


@pytest.mark.parametrize(("limit", "has_advice"), [(0, True), ("5", True), (-1, True), (2**53, False)])
def test_a_limit_that_is_too_large_is_not_told_to_have_none(limit: object, has_advice: bool) -> None:
    with pytest.raises(InvalidInput, match=r"is not a whole number from 1 to 9007199254740991") as refused:
        check_limit(limit)
    assert str(refused.value).endswith("; use None for no limit") is has_advice


@pytest.mark.parametrize("limit", [None, 1, 2**53 - 1])
def test_a_limit_is_positive_or_none(limit: int | None) -> None:
    check_limit(limit)


@pytest.mark.parametrize("key", ["\ud800", 1, None, True])
def test_a_key_that_json_cannot_hold_is_refused(key: object) -> None:
    with pytest.raises(InvalidInput):
        check_object("context", {key: "plain"})


def test_a_shared_list_is_counted_once_per_level() -> None:
    shared: list[Any] = []
    for _ in range(1_500):
        shared = [shared, shared]
    with pytest.raises(TooLarge, match="context: 1502 levels is over the limit of 100"):
        check_object("context", {"a": shared})


def test_an_object_with_many_shared_values_is_refused_without_writing_them() -> None:
    for shared, levels in (([], 60), ({"key": "x" * 2**20}, 40), ({"k" * 2**20: 1}, 40)):
        value: object = shared
        for _ in range(levels):
            value = [value, value]
        with pytest.raises(TooLarge, match=r"context: \d{19} bytes or more is over the limit of 65536"):
            check_object("context", {"a": value})


def test_a_small_object_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {"a": [1]}
    value["a"].append(value)
    with pytest.raises(InvalidInput, match="context: is not a JSON object: Circular reference"):
        check_object("context", value)


def test_a_deep_object_that_contains_itself_is_refused() -> None:
    inner: dict[str, Any] = {}
    outer: dict[str, Any] = inner
    for _ in range(1_500):
        outer = {"a": outer}
    inner["a"] = inner
    with pytest.raises(TooLarge, match="context: 10000 levels is over the limit of 100"):
        check_object("context", outer)


def test_a_checked_object_is_independent_of_the_callers() -> None:
    given_object: dict[str, Any] = {"task_id": "a"}
    stored = check_object("context", given_object)
    given_object["task_id"] = "b"
    assert stored == {"task_id": "a"}


@pytest.mark.parametrize("size", [4_000, 4_100, 64 * 1024 - 11, 64 * 1024 - 10])
def test_an_object_is_limited_to_64_kib_of_json(size: int) -> None:
    value = {"text": "x" * size}
    if len(json.dumps(value, separators=(",", ":"))) <= 64 * 1024:
        assert check_object("context", value) == value
    else:
        with pytest.raises(InvalidInput):
            check_object("context", value)


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_has_the_same_order_in_every_process(kind: type) -> None:
    tags = [f"tag {number:03}" for number in range(100)]
    ids = [f"01J0000000000000000000{number:04}" for number in range(100)]
    turns = [f"turn_{number}" for number in range(10**12, 10**12 + 100)]
    assert check_tags(kind(tags)) == tags
    assert check_evidence(kind(ids)) == ids
    assert Clear.parse({"ids": kind(ids)}).ids == ids
    assert CompactTurns.parse({"summary": "x", "turns": kind(turns)}).turns == turns


@pytest.mark.parametrize("trigger", [{}, {"tags": []}, {"tags": None}])
def test_a_trigger_without_a_condition_is_refused(trigger: dict[str, Any]) -> None:
    with pytest.raises(InvalidField, match="remind_on: is empty; give at least one of: type, status, tags"):
        check_trigger(trigger)
    assert check_trigger({"type": "note"} | trigger) == {"type": "note"} | {key: [] for key in trigger}


@pytest.mark.parametrize("blank", ["", " \n\t", "\x1c"])
def test_a_blank_text_is_refused(blank: str) -> None:
    with pytest.raises(InvalidField, match="content: is empty; say what was observed"):
        check_content(blank)
    with pytest.raises(InvalidField, match="reason: is empty; write a text"):
        check_reason(blank)
    with pytest.raises(InvalidField, match="title: is empty; name it"):
        check_not_blank("title", blank, "name it")
    assert check_not_blank("title", f"{blank}x", "name it") == f"{blank}x"


@pytest.mark.parametrize("value", [None, 5, b"text", ["text"]])
def test_a_value_that_is_not_a_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidField, match=r"content: .* is not a text"):
        check_content(value)
    with pytest.raises(InvalidField, match=r"title: .* is not a text"):
        check_not_blank("title", value, "name it")
    with pytest.raises(InvalidField, match=r"title: .* is not a text"):
        check_text("title", value)


@pytest.mark.parametrize("text", ["a" * 10, "é" * 5])
def test_a_content_is_limited_in_bytes_of_utf_8(text: str) -> None:
    assert check_content(text, 10) == text
    with pytest.raises(TooLarge, match="content: 11 bytes is over the limit of 10"):
        check_content(text + "b", 10)
    with pytest.raises(InvalidField, match="content: is not valid Unicode text"):
        check_content("\ud800", 10)


@pytest.mark.parametrize("value", [0, 1, None, "true"])
def test_a_flag_is_true_or_false(value: object) -> None:
    assert check_flag("strict", True) is True
    assert check_flag("strict", False) is False
    with pytest.raises(InvalidField, match=r"strict: .* is neither true nor false"):
        check_flag("strict", value)


@pytest.mark.parametrize("given_names", [["a", 5], b"a", 5])
def test_names_are_texts(given_names: Any) -> None:
    with pytest.raises(InvalidField, match="types: "):
        check_names("types", given_names)


def test_an_empty_list_of_names_is_refused_where_nothing_would_match() -> None:
    assert check_names("types", []) == frozenset()
    assert check_some("types", None) is None
    assert check_some("types", "ab") == frozenset({"ab"})
    with pytest.raises(InvalidField, match="types: is empty; name at least one, or leave it out for all"):
        check_some("types", [])


def test_ids_keep_their_order_and_those_of_a_set_are_sorted() -> None:
    later, earlier = "01ARZ3NDEKTSV4RRFFQ69G5FAW", "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert check_ids([later, earlier, later], "ids", 3) == [later, earlier]
    assert check_ids({later, earlier}, "ids", 2) == [earlier, later]
    with pytest.raises(TooLarge, match="ids: 3 ids is over the limit of 2; give fewer"):
        check_ids([later, earlier, later], "ids", 2)


@pytest.mark.parametrize("digits", [0, 17])
def test_the_id_of_a_memory_has_1_to_16_digits(digits: int) -> None:
    assert check_memory_id("note", "note_1") == "note_1"
    assert check_memory_id("note", "todo_" + "9" * 16, "id", "todo") == "todo_" + "9" * 16
    for id in ("note_" + "1" * digits, "note_1 ", "todo_1", 1):
        with pytest.raises(InvalidId, match=r"id: .* is not the id of a note; note ids look like note_1795256156929"):
            check_memory_id("note", id)


def test_a_label_has_1_to_256_printable_characters() -> None:
    assert check_label("owner", "é" * 256) == "é" * 256
    for label in ("", " ", "é" * 257, "a\nb", 5):
        with pytest.raises(InvalidField, match=r"owner: .* must be 1 to 256 printable characters"):
            check_label("owner", label)


def test_an_object_of_100_levels_is_accepted() -> None:
    value: dict[str, Any] = {}
    for _ in range(99):
        value = {"a": value}
    assert check_object("context", value) == value
    with pytest.raises(TooLarge, match="context: 101 levels"):
        check_object("context", {"a": value})


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_whole_number_has_at_most_308_digits(sign: str) -> None:
    number = int(sign + "9" * 308)
    assert check_object("context", {"a": [number], "text": "9" * 309}) == {"a": [number], "text": "9" * 309}
    with pytest.raises(TooLarge, match="309 digits of a whole number is over the limit of 308; write it as a text"):
        check_object("context", {"a": int(sign + "9" * 309)})


@pytest.mark.parametrize(("count", "size"), [(32, 4_096), (33, 1), (1, 4_097)])
def test_an_object_of_any_size_is_copied(count: int, size: int) -> None:
    value = {f"{number}": "x" for number in range(count - 1)} | {"text": "x" * size}
    assert check_object("context", value) == value
    assert check_object("context", value) is not value
