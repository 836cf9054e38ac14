"""The index of facts, without an engine."""

from __future__ import annotations

import sqlite3
import time

import pytest

from scratchbus.domain.facts import Fact
from scratchbus.domain.relation_registry import SAME_AS, RelationRegistry
from scratchbus.errors import IndexFailed
from scratchbus.readmodel.fact_index import NOW, FactIndex


def joined(pairs: list[tuple[int, int]]) -> FactIndex:
    """Return an index of facts that join these pairs of names, in this order."""
    index = FactIndex(RelationRegistry({}))
    facts = [
        Fact(
            id=f"fact_{seq}",
            subject=f"n{one}",
            relation=SAME_AS,
            object=f"n{other}",
            source="t",
            added_ms=1,
            added_seq=seq,
            ms=1,
            seq=seq,
        )
        for seq, (one, other) in enumerate(pairs, 1)
    ]
    index.load({fact.id: fact for fact in facts})
    index.loaded()
    return index


def names(index: FactIndex) -> dict[int, list[int]]:
    """Return the names of each entity, by each of its names, as their numbers in the pairs."""
    number_of = {number: int(name[1:]) for number, name in index._rows("SELECT id, name FROM entities")}
    return {number_of[one]: [number_of[each] for each in group] for one, group in index.same(NOW).items()}


def test_names_of_an_entity_are_in_the_order_of_their_joins() -> None:
    groups = names(joined([(1, 2), (3, 4), (4, 5), (1, 3), (7, 7), (8, 9), (9, 8)]))
    assert groups == {n: [1, 2, 3, 4, 5] if n < 6 else [8, 9] for n in (1, 2, 3, 4, 5, 8, 9)}


@pytest.mark.parametrize("is_backward", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_entity_with_many_names_takes_no_longer_for_each(is_backward: bool) -> None:
    """One with 20,000 names took half a minute."""
    numbers = range(20_000)
    index = joined([(n + 1, n) if is_backward else (n, n + 1) for n in numbers])
    began = time.process_time()
    groups = index.same(NOW)
    assert time.process_time() - began < 5
    assert {len(group) for group in groups.values()} == {20_001}


def test_an_index_that_cannot_be_opened_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", fail)
    with pytest.raises(IndexFailed, match="unable to open database file"):
        FactIndex(RelationRegistry({}))
