"""Positions as text, and their order."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.domain.position import START, BusPosition, Position, in_time
from scratchbus.domain.values import millis, moment
from scratchbus.errors import InvalidPosition

positions = st.builds(Position, st.integers(0, 10**14), st.integers(0, 10**14), st.integers(0, 16383))


@given(positions)
def test_a_position_survives_formatting_and_parsing(position):
    assert Position.parse(str(position)) == position


@given(st.lists(positions, min_size=2, max_size=16))
def test_a_bus_position_survives_formatting_and_parsing(shards):
    whole = BusPosition(tuple(position._replace(shard=n) for n, position in enumerate(shards)))
    assert BusPosition.parse(str(whole)) == whole


def test_the_text_names_any_shard_but_the_first():
    assert str(Position(5, 7)) == "5-7"
    assert str(Position(5, 7, 3)) == "3/5-7"
    assert Position(5, 7, 3).stream_id == "5-7"


@pytest.mark.parametrize(
    "text", ["", "5", "5-", "-7", "5-7-9", "a-b", " 5-7", "5-7\n", "x/5-7", "1/2/5-7", "-1-7", "1" * 16 + "-1", "٥-٧"]
)
def test_an_invalid_position_is_refused(text):
    with pytest.raises(InvalidPosition, match="write it as <ms>-<seq>"):
        Position.parse(text)


@pytest.mark.parametrize("text", [None, 5, b"1-2", "1-2,x", ""])
def test_an_invalid_position_of_a_bus_is_refused(text):
    with pytest.raises(InvalidPosition, match="is not a position"):
        BusPosition.parse(text)


def test_positions_of_several_shards_are_sorted_by_time():
    given = [Position(2, 1, 1), Position(1, 9, 1), Position(2, 5), Position(2, 4), Position(1, 3)]
    assert sorted(given, key=in_time) == [
        Position(1, 3), Position(1, 9, 1), Position(2, 4), Position(2, 5), Position(2, 1, 1),
    ]  # fmt: skip


def test_positions_compare_as_integers():
    assert START < Position(9, 1) < Position(9, 10) < Position(10, 2)
    assert max(Position(999, 1), Position(1000, 2)) == Position(1000, 2)


@given(st.integers(0, 253_402_300_799_999))
def test_milliseconds_survive_conversion_to_a_moment(ms):
    assert millis(moment(ms)) == ms
    assert moment(ms).tzinfo is UTC


def test_a_time_of_another_zone_is_the_same_moment():
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert millis(noon) == millis(noon.astimezone(timezone(timedelta(hours=5)))) == millis(noon.replace(tzinfo=None))
    assert Position(millis(noon), 1).at == noon


def test_no_event_is_before_1970():
    assert Position.before(datetime(1960, 1, 1, tzinfo=UTC)) == START


def test_parts_of_a_position_are_whole_numbers_of_up_to_15_digits():
    assert Position(10**15 - 1, 1).checked() == (10**15 - 1, 1, 0)
    for wrong in (Position(10**15, 1), Position(10**5_000, 1), Position(1, -1), Position(True, 1)):
        with pytest.raises(InvalidPosition):
            wrong.checked()
