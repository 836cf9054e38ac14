"""Live views: their reads against the page's own fresh reads, and the cost of starting one."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.stored_documents import decode_observations
from scratchbus.page import Page
from scratchbus.views.view import View
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, rates, times
from tests.benchmarks.stage import TAGS, TYPES, Sizes, Stage

OPEN = 100
LIMIT = 20
AT_ONCE = 1_000
"""How many documents the bare reader requests at once: as many as ours."""

READS_OF_VIEW = 10
"""Reads of the view for each read of the page, so that a round of the view is long enough to time."""


def measure_view(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare `view.active(limit=20)` and `view.list(type=, tags=, limit=20)` with the same calls of the page."""
    with ExitStack() as opened:
        small, in_small = _open(stage, opened, "viewed-small", OPEN)
        large, in_large = _open(stage, opened, "viewed-large", sizes.large_page)

        def active(what: Page | View) -> object:
            return what.active(limit=LIMIT)

        def narrow(what: Page | View) -> object:
            return what.list(type=TYPES[0], tags=[TAGS[0]], limit=LIMIT)

        return [
            _reading(sizes, f"active(limit={LIMIT}), {OPEN:,} open", active, in_small, small),
            _reading(sizes, f"list(type=, tags=, limit={LIMIT}), {sizes.large_page:,} open", narrow, in_large, large),
        ]


def _open(stage: Stage, opened: ExitStack, name: str, count: int) -> tuple[Page, View]:
    bus = stage.filled(name, count)
    return bus.page(), opened.enter_context(bus.view())


def _reading(sizes: Sizes, what: str, read: Callable[[Page | View], object], view: View, page: Page) -> Row:
    if read(view) != read(page):
        raise RuntimeError(f"the view and the page differ: {what}")
    reads = sizes.reads * READS_OF_VIEW
    taken = interleave(
        sizes.rounds,
        Side(f"view.{what}", reads, lambda: [read(view) for _ in range(reads)]),
        Side("the page's own fresh read", sizes.reads, lambda: [read(page) for _ in range(sizes.reads)]),
    )
    ours, theirs = taken
    each = f"{median(taken[ours]) * 1e6:.1f} µs a read, {median(taken[theirs]) * 1e6:,.0f} µs of the page"
    return rates(taken, ours, theirs, floor=Floor("ratio", "at least", 10), note=each)


def measure_view_start(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare the start of a view with reading and decoding all documents of its page."""
    bus = stage.filled("view-start", sizes.large_page)
    names = PageKeys(bus.core.log.keys(0), bus.page().name)
    views: list[View] = []

    def start() -> None:
        views.append(bus.view().__enter__())

    def close() -> None:
        while views:
            views.pop().close()

    def documents() -> None:
        read = [document for rows in _documents(stage, names) for document in decode_observations(rows)]
        if len(read) != sizes.large_page:
            raise RuntimeError("not all documents were read")

    def parsed() -> None:
        _ = [json.loads(row) for rows in _documents(stage, names) for row in rows]

    gc.freeze()  # as `runtime.serve` does for a daemon
    taken = interleave(
        max(3, sizes.rounds // 2),
        Side(f"view start, {sizes.large_page:,} open", 1, start, close),
        Side("read and decode the documents", 1, documents, close),
        Side("bare read + json.loads", 1, parsed, close),
    )
    gc.unfreeze()
    close()
    ours, decoded, bare = taken
    return [
        times(taken, ours, decoded, floor=Floor("ratio", "at most", 1.3)),
        times(taken, ours, bare, floor=Floor("ratio", "at most", 0.7)),
    ]


def _documents(stage: Stage, names: PageKeys) -> Any:
    """Yield the open documents of a page, read in batches by a bare client."""
    first = 0
    bare: Any = stage.bare
    while ids := bare.zrange(names.open, first, first + AT_ONCE - 1):
        yield bare.hmget(names.docs, ids)
        first += AT_ONCE
