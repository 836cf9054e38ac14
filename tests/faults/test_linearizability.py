"""The linearizability checker accepts answers that some order explains, and finds those that none does."""

from __future__ import annotations

import time
from math import inf
from random import Random
from typing import Any

import pytest

from tests.faults.history.head_model import Act, Head, Kind, step
from tests.faults.history.linearizability import Operation, linearize

HELD = {"may_end": 100.0, "must_end": 200.0}
"""A claim that is certainly live for the first 100 seconds."""


def op(call: float, ret: float, kind: Kind, who: str = "a", *, optional: bool = False, **more: Any) -> Operation:
    claimed = HELD if kind == "claim" else {}
    return Operation(call, ret, Act(kind, who, call=call, ret=ret, **{**claimed, **more}), optional)


def answer(*operations: Operation) -> str:
    return linearize(operations, Head(), step, 10_000).answer


ADD = op(0, 1, "add", version=1)


def test_concurrent_operations_may_take_any_order() -> None:
    assert answer(ADD, op(2, 9, "update", version=3), op(2, 9, "update", "b", version=2)) == "yes"
    assert answer(ADD, op(2, 9, "read", version=1), op(3, 4, "update", version=2), op(5, 6, "read", version=2)) == "yes"


def test_sequential_operations_keep_their_order() -> None:
    assert answer(ADD, op(2, 3, "update", version=3), op(4, 5, "update", "b", version=2)) == "no"


def test_an_answer_may_include_later_concurrent_changes() -> None:
    mine, other = op(2, 9, "link", at_most=3), op(3, 8, "update", "b", version=3)
    assert answer(ADD, mine, op(2, 9, "read", version=3), other) == "yes"
    assert answer(ADD, mine, op(2, 9, "read", version=3)) == "no"
    assert answer(ADD, op(2, 3, "link", at_most=2), op(4, 5, "link", at_most=2)) == "no"


def test_an_unanswered_operation_happens_later_or_never() -> None:
    lost = op(2, inf, "update", optional=True)
    assert answer(ADD, lost, op(50, 51, "read", version=1), op(60, 61, "read", version=2)) == "yes"
    assert answer(ADD, lost, op(60, 61, "read", version=1)) == "yes"
    assert answer(ADD, lost, op(50, 51, "read", version=2), op(60, 61, "read", version=1)) == "no"
    assert answer(ADD, op(2, 3, "read", version=2), op(4, inf, "update", optional=True)) == "no"


def test_a_duplicated_claim_is_found() -> None:
    first = op(2, 5, "claim", "a", fence_given=1)
    assert answer(ADD, first, op(3, 6, "claim", "b", fence_given=1)) == "no"
    assert answer(ADD, first, op(3, 6, "claim", "b", fence_given=2)) == "no"
    assert answer(ADD, first, op(6, 7, "release", "a", fence=1), op(8, 9, "claim", "b", fence_given=2)) == "yes"


def test_a_lapsed_claim_can_be_taken_over() -> None:
    first, second = op(2, 5, "claim", "a", fence_given=1), op(6, 7, "claim", "b", fence_given=2)
    lapsed = op(5, 7, "event", "", holder="", version=3)
    assert answer(ADD, first, lapsed, second) == "yes"
    assert answer(ADD, first, second) == "no"


def test_a_fence_is_accepted_from_its_holder_only() -> None:
    first = op(2, 3, "claim", "a", fence_given=1)
    assert answer(ADD, first, op(4, 5, "resolve", "a", fence=1, version=3)) == "yes"
    assert answer(ADD, first, op(4, 5, "resolve", "b", fence=1, version=3)) == "no"
    assert answer(ADD, first, op(4, 5, "resolve", "a", fence=2, version=3)) == "no"


def test_a_live_claim_stops_unfenced_writes_of_others() -> None:
    first = op(2, 3, "claim", "a", fence_given=1)
    assert answer(ADD, first, op(4, 5, "update", "b", version=3)) == "no"
    assert answer(ADD, first, op(4, 101, "update", "b", version=3)) == "yes", "the claim may have ended by then"
    assert answer(ADD, first, op(4, 5, "update", "b", refused="Claimed")) == "yes"
    assert answer(ADD, first, op(4, 5, "update", "a", fence=1, refused="StaleFence")) == "no"
    assert answer(ADD, first, op(201, 202, "update", "a", fence=1, version=3)) == "no", "the claim has ended by then"


def test_a_lost_update_is_found() -> None:
    updates = op(2, 5, "update", "a", expected=1, version=2), op(3, 6, "update", "b", expected=1, version=2)
    assert answer(ADD, *updates) == "no"
    assert answer(ADD, updates[0], op(3, 6, "update", "b", expected=1, refused="VersionConflict")) == "yes"
    assert answer(ADD, updates[0], op(1.1, 1.5, "update", "b", expected=1, refused="VersionConflict")) == "no"


def test_a_stale_read_is_found() -> None:
    assert answer(ADD, op(2, 3, "update", version=2), op(4, 5, "read", version=1)) == "no"
    assert answer(ADD, op(2, 5, "update", version=2), op(4, 5, "read", version=1)) == "yes"


def test_a_transition_has_one_winner() -> None:
    assert answer(ADD, op(2, 5, "resolve", "a"), op(2, 5, "resolve", "b", refused="InvalidTransition")) == "yes"
    assert answer(ADD, op(2, 5, "resolve", "a"), op(2, 5, "resolve", "b")) == "no"
    assert answer(ADD, op(2, 5, "resolve", "b", refused="InvalidTransition")) == "no"


def test_a_search_beyond_its_budget_is_undecided() -> None:
    many = [op(1, 100, "update", f"w{number}") for number in range(12)]
    assert linearize([ADD, *many, op(1, 100, "read", version=99)], Head(), step, 500).answer == "undecided"


@pytest.mark.parametrize("seed", range(3))
def test_a_long_history_is_decided_within_a_minute(seed: int) -> None:
    """Concurrent writers and readers for four minutes, with a tenth of the answers lost."""
    random, now, version, operations = Random(seed), 1.0, 1, [ADD]
    while now < 240:
        now += random.uniform(0.05, 0.4)
        call, ret = now - random.uniform(0, 0.8), now + random.uniform(0, 0.8)
        kind: Kind = random.choice(["update", "read", "link"])
        version += kind != "read"
        if random.random() < 0.1 and kind != "read":
            operations.append(op(max(1, call), inf, kind, optional=True))
        else:
            operations.append(op(max(1, call), ret, kind, version=version))
    begun = time.process_time()
    assert linearize(operations, Head(), step, 30_000).answer == "yes"
    broken = next(each for each in reversed(operations) if each.what.kind == "read")
    operations[operations.index(broken)] = op(broken.call, broken.ret, "read", version=broken.what.version - 20)
    assert linearize(operations, Head(), step, 30_000).answer in ("no", "undecided")
    assert time.process_time() - begun < 60


def test_archived_observations_accept_only_links() -> None:
    archived = op(2, 3, "event", status="archived", version=2)
    assert answer(ADD, archived, op(4, 5, "link", at_most=3)) == "yes"
    assert answer(ADD, archived, op(4, 5, "update", version=3)) == "no"
