"""Cached reads of a page equal first reads, after any sequence of changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, NotFound
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.keys import PageKeys
from scratchbus.readmodel import page_query
from scratchbus.readmodel.query_result import QueryResult
from scratchbus.scheduling.expiry import sweep
from scratchbus.scheduling.paging_out import page_out
from tests.clock import Clock
from tests.engines import ONE, Connect
from tests.inspection import archive, keys_of, project, raw_append, send

STEPS = 200
TYPES = ("risk_alert", "reminder", "pattern_detected", "observation")
NOBODY = "01M8AK73J5KEQDWQ4K878ZAFR9"


class Changes:
    """Random changes to a page."""

    def __init__(self, bus: Bus, clock: Clock, dice: random.Random) -> None:
        self._bus, self._clock, self._dice = bus, clock, dice
        self._page = bus.page()

    def one(self) -> str:
        """Return the id of a random observation."""
        return self._dice.choice([each.id for each in self._page.list(limit=None)] or [NOBODY])

    def new(self) -> dict[str, Any]:
        """Return the fields of a new observation."""
        dice = self._dice
        given: dict[str, Any] = {"type": dice.choice(TYPES), "content": f"{dice.randrange(100)}"}
        if dice.random() < 0.5:
            given["ttl"] = dice.choice(["5s", "60s"])
        if dice.random() < 0.2:
            given["dedupe_key"] = dice.choice("kl")
        if dice.random() < 0.05:
            given["blocked_by"] = [self.one()]
        return given

    def add_many(self) -> None:
        self._page.add_many([NewObservation(**self.new()) for _ in range(self._dice.choice([2, 3, 12]))])

    def update(self) -> None:
        now = max(self._clock.now, datetime.now(UTC))  # a client refuses what its own clock says is past
        end = now + timedelta(seconds=self._dice.choice([5, 3600]))
        self._page.update(self.one(), content="changed", expires_at=end)

    def repair(self) -> None:
        """Damage a stored document, and fold all of them again."""
        row = send(self._bus, "GET", keys_of(self._bus).live)
        names = keys_of(self._bus).page("main", int(row.split(b"|")[2]) if row else 1)
        id = self.one()
        if send(self._bus, "HEXISTS", names.docs, id):
            send(self._bus, "HSET", names.docs, id, b"{broken")
            self._bus.rebuild()

    def possible(self) -> list[tuple[Callable[[], object], float]]:
        """Return all changes with their weights."""
        bus, page, one, dice = self._bus, self._page, self.one, self._dice
        return [
            (lambda: page.add(**self.new()), 5),
            (self.add_many, 2),
            (lambda: bus.page("other").add("observation", "elsewhere"), 2),
            (self.update, 4),
            (lambda: page.update(one(), confidence=0.5), 2),
            (lambda: page.review(one()), 3),
            (lambda: page.resolve(one()), 3),
            (lambda: page.reopen(one()), 4),
            (lambda: page.archive(one()), 1),
            (lambda: page.clear_resolved([page.resolve(one()).id]), 1),
            (lambda: page.claim(one(), ttl=dice.choice(["5s", "60s"])), 3),
            (lambda: page.claim_next(ttl="5s"), 2),
            (lambda: page.release(one()), 2),
            (lambda: page.refute(one(), reason="wrong"), 1),
            (lambda: page.erase(one(), reason="asked for"), 1),
            (lambda: project(bus), 9),
            (bus.rebuild, 1),
            (self.repair, 1),
            (lambda: self._clock.advance(dice.choice(["1s", "6s", "61s"])), 4),
            (lambda: bus.converse(sweep(bus.core)), 2),
            (lambda: archive(bus), 0.5),
            (lambda: bus.converse(page_out(bus.core, 1)), 1),
            (lambda: raw_append(bus, subject=one(), kind="updated", event="{}"), 1),  # unreadable
        ]


@pytest.mark.damages_the_log
@pytest.mark.engines(*ONE)
@pytest.mark.parametrize(("seed", "limits"), [pytest.param(0, [3], marks=pytest.mark.slow), (1, [None, 40]), (2, [3])])
def test_cached_reads_equal_first_reads(
    connect: Connect, clock: Clock, tmp_path: Path, seed: int, limits: list[int | None]
):
    dice = random.Random(seed)
    settings: dict[str, Any] = {
        "archive_url": tmp_path, "retain": "1ms", "retain_events": 3, "archive_segment": 5, "max_observations": 30,
    }  # fmt: skip
    bus, reader, newcomer = (connect(name, **settings) for name in ("writer", "reader", "newcomer"))
    bus.page().add("observation", "first")
    changes, weights = zip(*Changes(bus, clock, dice).possible(), strict=True)
    for _ in range(STEPS):
        with suppress(Conflict, NotFound):
            dice.choices(changes, weights)[0]()
        if dice.random() < 0.2:
            continue
        keys, limit = keys_of(newcomer), dice.choice(limits)
        keys.cached_reads.clear()
        keys.cached_folds.clear()
        assert reader.page().active(limit) == newcomer.page().active(limit)
        assert reader.page().ready(limit) == newcomer.page().ready(limit)


def test_a_limited_read_beside_one_in_review_reads_few(
    connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = connect(max_observations=500)
    page = bus.page()
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(300)])
    page.review(page.add("risk_alert", "first").id)
    expected, query_page, counts = page.active()[:2], page_query.query_page, list[int]()

    def counted(*arguments: Any, **options: Any) -> Step[QueryResult]:
        result = yield from query_page(*arguments, **options)
        counts.append(len(result.rows))
        return result

    monkeypatch.setattr(page_query, "query_page", counted)
    project(bus)
    keys_of(bus).cached_reads.clear()
    assert page.active(limit=2) == expected
    assert sum(counts) < 30


def test_a_cached_page_does_not_survive_a_rebuild_that_repairs_it(bus: Bus, connect: Connect) -> None:
    page, other = bus.page(), connect()
    id = page.add("observation", "right").id
    project(bus)
    names = PageKeys(keys_of(bus), "main", bus.converse(read_checkpoint(keys_of(bus))).build)
    document = send(bus, "HGET", names.docs, id)
    send(bus, "HSET", names.docs, id, document.replace(b"right", b"wrong"))
    assert [each.content for each in page.active()] == ["wrong"]
    other.rebuild()
    assert [each.content for each in page.active()] == ["right"]


@pytest.mark.damages_the_log
def test_events_that_a_failover_lost_leave_the_cached_fold(bus: Bus, connect: Connect, clock: Clock) -> None:
    page, other = bus.page(), connect()
    page.add("observation", "first")
    project(bus)
    keys = f"{{{bus.core.log.bus}:*"
    saved = {key: send(bus, "DUMP", key) for key in send(bus, "KEYS", keys)}
    page.add("observation", "lost")
    for _ in range(3):
        assert [each.content for each in page.active()] == ["lost", "first"]
    for key in send(bus, "KEYS", keys):
        send(bus, "DEL", key)
    for key, content in saved.items():
        send(bus, "RESTORE", key, 0, content)
    other.page().add("observation", "kept")
    other.page().add("observation", "last")
    assert [each.content for each in page.active()] == ["last", "kept", "first"]
