"""A count equals the length of the list, after any sequence of changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, EngineReadOnly, NotFound
from scratchbus.readmodel.page_query import IN_MEMORY, query_page
from scratchbus.readmodel.query_result import QueryResult
from scratchbus.scheduling.paging_out import page_out
from tests.clock import Clock
from tests.contracts.test_cached_reads import TYPES, Changes
from tests.engines import ONE, Connect
from tests.inspection import archive, project

STEPS = 120
STATUSES = ("active", "pending_review", "resolved", "archived")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many each query counted without their documents."""
    found = list[int]()

    def recorded(*arguments: Any, **options: Any) -> Step[QueryResult]:
        result = yield from query_page(*arguments, **options)
        found.append(result.counted)
        return result

    monkeypatch.setattr("scratchbus.readmodel.counting.query_page", recorded)
    return found


def filters(dice: random.Random) -> dict[str, Any]:
    """Return random filters."""
    given: dict[str, Any] = {
        "type": dice.choice(TYPES),
        "tags": dice.choice(["a", ["a", "b"]]),
        "owner": "x",
        "status": dice.choice([dice.choice(STATUSES), list(STATUSES[:2])]),
    }
    return {name: value for name, value in given.items() if dice.random() < 0.35}


@pytest.mark.damages_the_log
@pytest.mark.engines(*ONE)
@pytest.mark.parametrize("seed", range(4))
def test_a_count_equals_the_length_of_the_list(
    connect: Connect, clock: Clock, tmp_path: Path, counted: list[int], seed: int
) -> None:
    dice = random.Random(seed)
    settings: dict[str, Any] = {
        "archive_url": tmp_path, "retain": "1ms", "retain_events": 3, "archive_segment": 5, "max_observations": 30,
    }  # fmt: skip
    bus, reader = connect("writer", **settings), connect("reader", **settings)
    page, changes = bus.page(), Changes(bus, clock, dice)

    def tag() -> None:
        tags = dice.choice([["a"], ["b"], ["a", "b"], []])
        page.update(changes.one(), tags=tags, owner=dice.choice([None, "x"]))

    acts, weights = zip(*changes.possible(), (tag, 8), strict=True)
    if seed:
        acts, weights = acts[:-3] + acts[-2:], weights[:-3] + weights[-2:]  # nothing is paged out
    for _ in range(STEPS):
        with suppress(Conflict, NotFound):
            dice.choices(acts, weights)[0]()
        given = filters(dice)
        listed = page.list(given, limit=None)
        assert reader.page().count(given, limit=None) == len(listed), given
        limit = dice.randrange(1, 10)
        assert reader.page().count(given, limit=limit) == min(limit, len(listed)), given
        if listed:
            at = dice.randrange(len(listed))
            assert reader.page().count(given, after=listed[at], limit=None) == len(listed) - at - 1, given
    assert sum(counted) > STEPS


def test_a_count_reads_no_documents(connect: Callable[..., Bus], counted: list[int]) -> None:
    bus = connect(max_observations=5_000)
    page = bus.page()
    for _ in range(3):
        page.add_many([NewObservation(type="observation", content=f"{n}", tags=["t"]) for n in range(1_000)])
    page.resolve(page.add("risk_alert", "done").id)
    project(bus)
    assert page.count(limit=None) == 3_001
    assert page.count() == 1_000
    assert page.count(status="active", tags="t", limit=None) == 3_000
    assert counted == [3_001, 3_001, 2_000, 1_000]


@pytest.mark.parametrize(
    "given",
    [
        {"text": "a"},
        {"source": "test"},
        {"context": {"k": 1}},
        {"metadata": {"k": 1}},
        {"confidence": 0.7},
        {"since": datetime(2020, 1, 1, tzinfo=UTC)},
    ],
)
def test_filters_on_documents_are_counted_by_them(connect: Connect, given: dict[str, Any]) -> None:
    bus = connect(source="test")
    page = bus.page()
    page.add("observation", "a", context={"k": 1}, metadata={"k": 1}, confidence=0.9)
    page.add("observation", "b", source="other", confidence=0.5)
    assert page.count(given) == len(page.list(given)) > 0
    project(bus)
    assert page.count(given) == len(page.list(given)) > 0


def test_a_stale_count_equals_the_stale_list(connect: Connect) -> None:
    bus = connect()
    page = bus.page()
    first = page.add("observation", "a")
    project(bus)
    page.resolve(first.id)
    page.add("observation", "b")
    assert page.count(stale_ok=True) == 1
    assert page.count(status="active", stale_ok=True) == len(page.list(status="active", stale_ok=True))


@pytest.mark.engines(*ONE)
def test_paged_out_observations_are_counted(connect: Connect, tmp_path: Path) -> None:
    bus = connect(archive_url=tmp_path, retain="1ms", retain_events=2, archive_segment=5)
    page = bus.page()
    for n in range(6):
        page.archive(page.add("observation", f"{n}").id)
    page.add("observation", "open")
    project(bus)
    archive(bus)
    assert bus.converse(page_out(bus.core, 0)).documents
    assert page.count() == 7
    assert page.count(status="archived") == 6


def test_a_reader_that_may_not_commit_counts(connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch) -> None:
    bus = connect(max_observations=500)
    page = bus.page()
    first = page.add("observation", "first")
    project(bus)
    page.resolve(first.id)
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(IN_MEMORY)])

    def refused(*arguments: object) -> Step[None]:
        yield from ()
        raise EngineReadOnly("no writing here")

    monkeypatch.setattr("scratchbus.readmodel.commits.commit", refused)
    assert page.count() == IN_MEMORY + 1
    assert page.count(status="resolved") == 1
