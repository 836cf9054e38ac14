"""Differences between two lists of observations."""

from scratchbus.domain.difference import differences
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.values import moment


def observation(id, seq=1, **more):
    return Observation(id=id, page="main", type="observation", content=id, source="s", added_ms=1, added_seq=seq,
                       **{"ms": 1, "seq": seq} | more)  # fmt: skip


def summary(before, after):
    return [(each.kind, each.id, each.fields) for each in differences(before, after)]


def test_equal_observations_do_not_differ():
    both = [observation("a"), observation("b", 2)]
    assert summary(both, reversed(both)) == summary([], []) == []


def test_positions_are_not_compared():
    assert summary([observation("a")], [observation("a", ms=5, seq=9)]) == []


def test_differences_are_in_order_of_addition():
    before, after = (
        [observation("e", 5), observation("c", 3), observation("a", 1)],
        [observation("d", 4), observation("b", 2), observation("c", 3, status="resolved")],
    )
    assert summary(before, after) == [
        ("gone", "a", ()), ("added", "b", ()), ("changed", "c", ("status",)), ("added", "d", ()), ("gone", "e", ()),
    ]  # fmt: skip


def test_a_difference_has_the_observation_on_each_side():
    gone, old, new, added = (
        observation("a"), observation("b", 2), observation("b", 2, status="resolved"), observation("c", 3),
    )  # fmt: skip
    sides = [(each.before, each.after) for each in differences([gone, old], [new, added])]
    assert sides == [(gone, None), (old, new), (None, added)]


def test_changes_have_the_old_and_new_value_of_each_field():
    claim = Claim(by="x", fence=1, until=moment(5))
    (difference,) = differences(
        [observation("a", context={"n": [1]})], [observation("a", context={"n": [2]}, claim=claim)]
    )
    assert difference.changes() == {"context": ({"n": [1]}, {"n": [2]}), "claim": (None, claim)}
