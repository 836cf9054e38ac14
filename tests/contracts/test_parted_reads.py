"""A page read in parts, while others change it, reads as in one call."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.engine.steps import Call, Step
from scratchbus.errors import Conflict, NotFound
from scratchbus.readmodel import open_parts, page_query
from scratchbus.readmodel.query_result import QueryResult
from tests.clock import Clock
from tests.contracts.test_cached_reads import Changes
from tests.engines import ONE, Connect
from tests.faults.interposing import Around, Send, interposed
from tests.inspection import copies_of, keys_of, project, restore

READS = 60


@contextmanager
def parts_of(size: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read so many observations with one call."""
    with monkeypatch.context() as patch:
        patch.setattr(page_query, "PART", size)
        patch.setattr(open_parts, "PART", size)
        yield


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[QueryResult]:
    """The results of all queries, in order."""
    query_page, found = page_query.query_page, list[QueryResult]()

    def recorded(*arguments: Any, **options: Any) -> Step[QueryResult]:
        result = yield from query_page(*arguments, **options)
        found.append(result)
        return result

    monkeypatch.setattr(page_query, "query_page", recorded)
    return found


@pytest.mark.damages_the_log
@pytest.mark.engines(*ONE)
@pytest.mark.parametrize("seed", range(3))
def test_parts_equal_one_call_while_others_write(
    connect: Connect,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    results: list[QueryResult],
    seed: int,
) -> None:
    dice = random.Random(seed)
    settings: dict[str, Any] = {
        "archive_url": tmp_path, "retain": "1ms", "retain_events": 3, "archive_segment": 5, "max_observations": 30,
    }  # fmt: skip
    bus, reader, newcomer = (connect(name, **settings) for name in ("writer", "reader", "newcomer"))
    bus.page().add_many([NewObservation(type="observation", content=f"{n}") for n in range(20)])
    project(bus)
    changes, weights = zip(*Changes(bus, clock, dice).possible(), strict=True)
    is_writing = [False]

    def change_first(call: Call, send: Send) -> list[Any]:
        if not is_writing[0] and dice.random() < 0.4:
            is_writing[0] = True
            with suppress(Conflict, NotFound):
                dice.choices(changes, weights)[0]()
            is_writing[0] = False
        return send()

    reads: list[Callable[[Bus], object]] = [
        lambda bus: bus.page().active(),
        lambda bus: bus.page().active(dice_limit),
        lambda bus: bus.page().ready(),
    ]
    parts = 0
    for _ in range(READS):
        read, dice_limit = dice.choice(reads), dice.randrange(4, 15)
        with parts_of(3, monkeypatch), interposed(reader, change_first):
            results.clear()
            found = read(reader)
            parts += sum(result.below != "" and result.changed is not None for result in results)
        with parts_of(open_parts.ALL, monkeypatch):
            keys_of(newcomer).cached_reads.clear()
            keys_of(newcomer).cached_folds.clear()
            assert found == read(newcomer)
    assert parts


def test_no_call_returns_more_than_a_part(connect: Callable[..., Bus], results: list[QueryResult]) -> None:
    page = connect(max_observations=5_000).page()
    for _ in range(2):
        page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(1_000)])
    listed = page.list(limit=None)
    results.clear()
    assert page.active() == listed
    assert page.active(1_700) == listed[:1_700]
    assert [len(result.rows) for result in results] == [800, 800, 400, 800, 800, 100]


def test_a_blocker_in_a_later_part_blocks(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    page = connect().page()
    blocker = page.add("observation", "first")
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(9)])
    page.add("risk_alert", "blocked", blocked_by=[blocker.id])
    with parts_of(3, monkeypatch):
        assert [each.content for each in page.active(2)] == ["8", "7"]


def before_second_call(act: Callable[[], object]) -> Around:
    """Do something before the second request."""
    calls = count(1)

    def around(call: Call, send: Send) -> list[Any]:
        if next(calls) == 2:
            act()
        return send()

    return around


def test_a_change_below_the_parts_read_does_not_move_it_up(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    bus, other = connect(), connect("other")
    page = bus.page()
    added = page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(9)])
    page.review(added[7].id)
    project(bus)

    def change_last() -> None:
        other.page().update(added[0].id, content="changed")
        project(other)

    with parts_of(3, monkeypatch), interposed(bus, before_second_call(change_last)):
        assert [each.content for each in page.active(4)] == ["8", "6", "5", "4"]


def test_a_rebuild_between_two_parts_is_no_problem(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, results: list[QueryResult]
) -> None:
    bus, other = connect(), connect("other")
    page = bus.page()
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(9)])
    project(bus)
    with parts_of(3, monkeypatch), interposed(bus, before_second_call(other.rebuild)):
        results.clear()
        assert [each.content for each in page.active()] == [f"{n}" for n in range(8, -1, -1)]
    assert len(results[-1].rows) == 9


def test_a_stale_read_shows_the_page_as_it_was_at_one_moment(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    bus, other = connect(), connect("other")
    page = bus.page()
    high = page.add("risk_alert", "high")
    low = page.add("observation", "low")
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(6)])
    project(bus)

    def resolve_both() -> None:
        other.page().resolve(high.id)
        other.page().resolve(low.id)

    with parts_of(3, monkeypatch), interposed(bus, before_second_call(resolve_both)):
        found = {each.id for each in page.active(stale_ok=True)}
    assert (high.id in found) <= (low.id in found)


@pytest.mark.damages_the_log
def test_a_failover_between_two_parts_hides_nothing(
    connect: Connect, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, other = connect(), connect("other")
    page = bus.page()
    added = page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(9)])
    project(bus)
    copies = copies_of(bus)
    page.update(added[8].id, content="lost")
    with parts_of(3, monkeypatch), interposed(bus, before_second_call(lambda: restore(other, copies))):
        assert [each.content for each in page.active()] == [f"{n}" for n in range(8, -1, -1)]


def test_a_whole_read_after_a_limited_one_is_whole(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = connect()
    page = bus.page()
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(9)])
    project(bus)
    with parts_of(3, monkeypatch):
        assert len(page.active(3)) == 3
        assert len(page.active()) == 9
