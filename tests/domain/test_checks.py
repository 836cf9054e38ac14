"""Objects passed by callers are stored exactly as JSON reads them back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.commands.change import Clear
from scratchbus.commands.turns import CompactTurns
from scratchbus.domain.checks import check_evidence, check_limit, check_object, check_tags
from scratchbus.errors import InvalidInput, TooLarge

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
