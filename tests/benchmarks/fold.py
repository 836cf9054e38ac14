"""The projector: how fast it folds and commits a backlog."""

from __future__ import annotations

import gc
from collections import deque
from time import process_time

from scratchbus import Bus
from scratchbus.page import Page
from tests.benchmarks.measure import Side, interleave, spread
from tests.benchmarks.rows import Floor, Row, rates
from tests.benchmarks.stage import Sizes, Stage, add_each, catch_up, given

LIFE = 5
"""Events in the life of one observation of the mixed backlog."""


def measure_fold(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare folding backlogs of additions and of whole lives with single `page.add`s and bare `XRANGE`."""
    adding, added, mixed = stage.bus("adding"), stage.bus("added"), stage.bus("mixed")
    page = adding.page()
    items = [given(number) for number in range(sizes.adds)]
    add_each(added.page(), map(given, range(sizes.backlog)))
    for number in range(sizes.backlog // LIFE):
        _live(mixed.page(), number)
    lives = sizes.backlog // LIFE * LIFE
    busy: list[float] = []
    log = added.core.log.keys(0).log

    def fold(bus: Bus, expected: int) -> None:
        begin = process_time()
        folded = catch_up(bus)
        if bus is added:
            busy.append((process_time() - begin) / folded)
        if folded != expected:
            raise RuntimeError(f"folded {folded} events, not {expected}")

    gc.freeze()  # as `runtime.serve` does for a daemon
    taken = interleave(
        sizes.rounds,
        Side("projector, a backlog of additions", sizes.backlog, lambda: fold(added, sizes.backlog),
             lambda: stage.forget_folded(added)),
        Side("single page.add", len(items), lambda: add_each(page, items)),
        Side("bare XRANGE", sizes.backlog, lambda: deque(stage.log_entries(log), maxlen=0)),
        Side("projector, a backlog of whole lives", lives, lambda: fold(mixed, lives),
             lambda: stage.forget_folded(mixed)),
    )  # fmt: skip
    gc.unfreeze()
    additions, single, bare, whole = taken
    share = spread([own / all for own, all in zip(busy[1:], taken[additions], strict=True)]).median
    return [
        rates(
            taken, additions, bare, floor=Floor("ratio", "at least", 0.35),
            note=f"guide: 50,000/s; the projector's process is busy {share:.0%} of the time, else the engine",
        ),
        rates(taken, additions, single, floor=Floor("ratio", "at least", 1.2)),
        rates(taken, whole, single, note="added, updated, claimed, linked, resolved: five events an observation"),
    ]  # fmt: skip


def _live(page: Page, number: int) -> None:
    id = page.add(**given(number)).id
    page.update(id, confidence=0.5)
    claim = page.claim(id)
    page.link(id, f"goal-{number}", fence=claim.fence)
    page.resolve(id, fence=claim.fence)
