"""Large pages: a page of 100,000 open observations against one of 1,000."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

from scratchbus import Bus
from scratchbus.page import Page
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import TAGS, TYPES, Sizes, Stage, add_each, catch_up, fill, given

LIMIT = 20


def measure_growth(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare `add`, `get`, `active(limit=20)` and `list(type=, tags=, limit=20)` on a large and on a small page."""
    large, small = stage.bus("large"), stage.bus("small")
    large_ids, small_ids = fill(large.page(), sizes.large_page), fill(small.page(), sizes.small_page)
    catch_up(large)
    catch_up(small)
    pick = random.Random(20).sample
    some_large, some_small = pick(large_ids, sizes.reads), pick(small_ids, sizes.reads)

    def get(page: Page, ids: list[str]) -> None:
        for id in ids:
            page.get(id)

    def active(page: Page) -> None:
        for _ in range(sizes.reads):
            page.active(limit=LIMIT)

    def narrow(page: Page) -> None:
        for _ in range(sizes.reads):
            page.list(type=TYPES[0], tags=[TAGS[0]], limit=LIMIT)

    def row(what: str, on_large: Side, on_small: Side) -> Row:
        taken = interleave(sizes.rounds, on_large, on_small)
        floor = Floor("ratio", "at most", 1.5)
        return times(taken, on_large.name, on_small.name, what=f"{what}, {on_large.name}", floor=floor)

    def reading(what: str, on_large: Callable[[], None], on_small: Callable[[], None]) -> Row:
        big, little = f"{sizes.large_page:,} open", f"{sizes.small_page:,} open"
        return row(what, Side(big, sizes.reads, on_large), Side(little, sizes.reads, on_small))

    rows = [
        reading("get", lambda: get(large.page(), some_large), lambda: get(small.page(), some_small)),
        reading("active(limit=20)", lambda: active(large.page()), lambda: active(small.page())),
        reading("list(type=, tags=, limit=20)", lambda: narrow(large.page()), lambda: narrow(small.page())),
    ]
    return [row("add", *_adding(stage, sizes, large)), *rows]


def _adding(stage: Stage, sizes: Sizes, large: Bus) -> tuple[Side, Side]:
    """Return the two sides that add; the small page is new each round, so that it stays small."""
    items = [given(number) for number in range(sizes.reads)]
    numbers = count()
    fresh: list[Page] = []

    def renew() -> None:
        fresh[:] = [stage.bus(f"small-{next(numbers)}").page()]
        fill(fresh[0], sizes.small_page)

    return (
        Side(f"{sizes.large_page:,} open", len(items), lambda: add_each(large.page(), items)),
        Side(f"{sizes.small_page:,} open", len(items), lambda: add_each(fresh[0], items), renew),
    )
