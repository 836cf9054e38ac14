"""Contexts: one of 8,000 tokens from a full page and session, against bare reads of the same documents."""

from __future__ import annotations

import json
from typing import Any

from scratchbus.eventlog.keys import PageKeys
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import Sizes, Stage, catch_up, fill, given

SESSION = "s1"
BUDGET = 8_000


def measure_context(stage: Stage, sizes: Sizes) -> list[Row]:
    """Assemble and surface from many open observations and as many notes, with nothing left to fold."""
    count = sizes.small_page
    bus = stage.bus("context")
    fill(bus.page(), count)
    notes = bus.notes(SESSION)
    for number in range(count):
        notes.add(given(number)["content"], given(number)["tags"])
    bus.notepad(SESSION).write("## Plan\n- [ ] survey\n" * 20)
    bus.todo(SESSION).write([{"id": str(number), "content": "look at it"} for number in range(20)])
    catch_up(bus)
    keys = bus.core.log.keys(0)
    hashes = PageKeys(keys, "main").docs, PageKeys(keys, f"session:{SESSION}").memory
    reads = max(2, sizes.reads // 10)

    def assemble() -> None:
        for _ in range(reads):
            bus.context.assemble(session=SESSION, page="main", budget=BUDGET)

    def surface() -> None:
        for _ in range(reads):
            bus.context.surface("failed login on the disk", BUDGET, session=SESSION)

    def bare() -> None:
        for _ in range(reads):
            for key in hashes:
                rows: Any = stage.bare.hvals(key)
                _ = [json.loads(row) for row in rows]

    taken = interleave(
        sizes.rounds,
        Side(f"context of {BUDGET:,} tokens, {count:,} open and notes", reads, assemble),
        Side("bare HVALS + json.loads of all", reads, bare),
        Side(f"surface(), {count:,} open and notes", reads, surface),
    )
    assembled, theirs, surfaced = taken
    return [
        times(taken, assembled, theirs, floor=Floor("ours", "at most", 0.02)),
        times(taken, surfaced, theirs),
    ]
