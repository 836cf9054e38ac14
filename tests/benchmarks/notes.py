"""Notes: a session of 10,000 against one of 100."""

from __future__ import annotations

from itertools import count

from scratchbus import Notes
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import Sizes, Stage

_SHEETS = 7


def measure_notes(stage: Stage, sizes: Sizes) -> list[Row]:
    """Take a note and search for one, in a session with many notes and in one with few."""
    bus = stage.bus("notes")
    many, few = sizes.notes, max(1, sizes.notes // 100)
    full, numbers, names = bus.notes("many"), count(), count()
    _fill(full, many)
    fresh: list[Notes] = []

    def renew() -> None:
        fresh[:] = [bus.notes(f"few-{next(names)}")]
        _fill(fresh[0], few)

    def work(session: Notes) -> None:
        for _ in range(sizes.reads):
            number = next(numbers)
            session.add(f"another finding, {number}", ["new"])
            found = session.search(f"finding {number % few}:")
            assert found.metadata["result_count"] == 1

    ours, theirs = f"{many:,} notes", f"{few:,} notes"
    taken = interleave(
        sizes.rounds,
        Side(ours, sizes.reads, lambda: work(full)),
        Side(theirs, sizes.reads, lambda: work(fresh[0]), renew),
    )
    floor = Floor("ratio", "at most", 3.0)
    return [times(taken, ours, theirs, what=f"add_note + search_notes, {ours}", floor=floor)]


def _fill(session: Notes, size: int) -> None:
    for number in range(size):
        session.add(f"finding {number}: sheet {number % _SHEETS} does not sum up", [f"sheet {number % _SHEETS}"])
