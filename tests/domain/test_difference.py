"""What differs between two lists of observations."""

from scratchbus.domain.difference import differences
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.values import moment


def seen(id, seq=1, **more):
    return Observation(id=id, page="main", type="observation", content=id, source="s", added_ms=1, added_seq=seq,
                       **{"ms": 1, "seq": seq} | more)  # fmt: skip


def told(before, after):
    return [(each.kind, each.id, each.fields) for each in differences(before, after)]


def test_what_is_the_same_is_no_difference():
    both = [seen("a"), seen("b", 2)]
    assert told(both, reversed(both)) == told([], []) == []


def test_where_it_stands_in_the_log_is_no_difference():
    assert told([seen("a")], [seen("a", ms=5, seq=9)]) == []


def test_each_is_told_once_in_the_order_in_which_it_was_added():
    before, after = [seen("c", 3), seen("a", 1)], [seen("d", 4), seen("b", 2), seen("c", 3, status="resolved")]
    assert told(before, after) == [
        ("gone", "a", ()), ("added", "b", ()), ("changed", "c", ("status",)), ("added", "d", ()),
    ]  # fmt: skip


def test_all_fields_that_changed_are_named_with_their_values():
    claim = Claim(by="x", fence=1, until=moment(5))
    (difference,) = differences([seen("a", context={"n": [1]})], [seen("a", context={"n": [2]}, claim=claim)])
    assert difference.changes() == {"context": ({"n": [1]}, {"n": [2]}), "claim": (None, claim)}
