"""Reading: a fresh `active()` against bare `HMGET` and JSON, events against bare `XRANGE`."""

from __future__ import annotations

import json
from collections import deque
from itertools import starmap
from typing import Any

from scratchbus import Bus
from scratchbus.eventlog.keys import PageKeys
from scratchbus.page import Page
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, rates, times
from tests.benchmarks.stage import Sizes, Stage, add_each, catch_up, given, lag

OPEN = 100
CHANGED = 5
UNFOLDED = 50
READERS = 10
"""How many buses are read once each, so that a round of reads after changes is long enough to time."""


def measure_active(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare fresh `active()` calls with 100 open: unchanged, changed, or with 50 events to fold."""
    bus, behind, anew = (stage.filled(name, OPEN) for name in ("open", "behind", "anew"))
    changing = [stage.filled(f"changed-{number}", OPEN) for number in range(READERS)]
    page, late, first = bus.page(), behind.page(), anew.page()
    stored = _documents(bus)
    (_, late_ids), (_, first_ids) = _documents(behind), _documents(anew)
    stored_of_each = [_documents(one) for one in changing]
    left: list[int] = []

    def bare(key: str, ids: list[str]) -> list[Any]:
        rows: Any = stage.bare.hmget(key, ids)
        return [json.loads(row) for row in rows]

    def read(what: Page) -> None:
        for _ in range(sizes.reads):
            what.active()

    def change() -> None:
        for one in changing:
            observations = one.page().active()  # fills the cache
            for observation in observations[:CHANGED]:
                one.page().update(observation.id, confidence=0.5)
            catch_up(one)

    def read_changed() -> None:
        for one in changing:
            one.page().active()

    def read_all() -> None:
        for _ in range(sizes.reads):
            bus.core.log.keys(0).cached_reads.clear()
            page.active()

    def read_late() -> None:
        read(late)
        left.append(lag(behind))

    def read_first() -> None:
        for _ in range(sizes.reads):
            anew.core.log.keys(0).cached_folds.clear()
            anew.core.log.keys(0).cached_reads.clear()
            first.active()

    taken = interleave(
        sizes.rounds,
        Side("fresh active(), 100 open", sizes.reads, read_all),
        Side("bare HMGET + json.loads", sizes.reads, lambda: [bare(*stored) for _ in range(sizes.reads)]),
        Side("fresh active(), 100 open, unchanged since the last read", sizes.reads, lambda: read(page)),
        Side(f"fresh active(), 100 open, {CHANGED} changed since the last read", READERS, read_changed, change),
        Side("bare HMGET + json.loads, once of each", READERS, lambda: [*starmap(bare, stored_of_each)]),
        Side("fresh active(), 100 open, 50 events not folded", sizes.reads, read_late,
             lambda: _fall_behind(behind, late_ids)),
        Side("the first such read of a process", sizes.reads, read_first, lambda: _fall_behind(anew, first_ids)),
    )  # fmt: skip
    ours, theirs, unchanged, changed, bare_of_each, unfolded, new = taken
    return [
        times(taken, ours, theirs, floor=Floor("ratio", "at most", 1.0)),
        times(taken, unchanged, theirs, floor=Floor("ratio", "at most", 1.0)),
        times(taken, changed, bare_of_each, floor=Floor("ratio", "at most", 1.0)),
        times(
            taken, unfolded, theirs, floor=Floor("ratio", "at most", 2.0),
            note=f"{UNFOLDED} before each round, {min(left)} to {max(left)} after it",
        ),
        times(taken, new, theirs),
    ]  # fmt: skip


def _documents(bus: Bus) -> tuple[str, list[str]]:
    """Return the key of the stored documents of a page, and the ids of those that are open."""
    page = bus.page()
    return PageKeys(bus.core.log.keys(0), page.name).docs, [observation.id for observation in page.active()]


def _fall_behind(bus: Bus, ids: list[str]) -> None:
    """Update observations until `UNFOLDED` events are not folded."""
    page = bus.page()
    for id in ids[: UNFOLDED - lag(bus)]:
        page.update(id, confidence=0.5)


def measure_events(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare reading the whole log."""
    bus = stage.bus("events")
    add_each(bus.page(), map(given, range(sizes.backlog)))
    log = bus.core.log.keys(0).log

    def parsed() -> None:
        for _, fields in stage.log_entries(log):
            json.loads(fields[b"event"])

    taken = interleave(
        sizes.rounds,
        Side("bus.events()", sizes.backlog, lambda: deque(bus.events(), maxlen=0)),
        Side("bare XRANGE", sizes.backlog, lambda: deque(stage.log_entries(log), maxlen=0)),
        Side("bare XRANGE + json.loads", sizes.backlog, parsed),
    )
    ours, bare, with_json = taken
    return [rates(taken, ours, bare), rates(taken, ours, with_json, floor=Floor("ratio", "at least", 1.2))]
