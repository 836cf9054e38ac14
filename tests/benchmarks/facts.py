"""Facts: a scope of 100,000 against one of 1,000."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, islice

from scratchbus import Facts
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import Sizes, Stage

_AT_ONCE = 1_000  # the limit of facts of one text
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
_APPS = 10  # facts about each subject, on average


def measure_facts(stage: Stage, sizes: Sizes) -> list[Row]:
    """Assert a fact and query one, in a scope with many facts and in one with few."""
    bus = stage.bus("facts")
    many, few = sizes.facts, max(_APPS, sizes.facts // 100)
    full, small, numbers = bus.facts("many"), bus.facts("few"), count()
    _fill(full, many)
    _fill(small, few)

    def asserting(facts: Facts, size: int) -> None:
        for number in islice(numbers, sizes.reads):
            app, since = f"app {number % (size // _APPS)}", _LONG_AGO + timedelta(milliseconds=number)
            facts.assert_fact(app, "runs_on", f"version {number}", valid_at=since)

    def querying(facts: Facts, size: int) -> None:
        for number in islice(numbers, sizes.reads):
            app = f"app {number % (size // _APPS)}"
            assert facts.query(app, "runs_on")
            assert facts.query(app, limit=10)

    ours, theirs = f"{many:,} facts", f"{few:,} facts"
    rows = []
    for what, work in (("assert_fact", asserting), ("query", querying)):
        taken = interleave(
            sizes.rounds,
            Side(ours, sizes.reads, partial(work, full, many)),
            Side(theirs, sizes.reads, partial(work, small, few)),
        )
        rows.append(times(taken, ours, theirs, what=f"{what}, {ours}", floor=Floor("ratio", "at most", 1.5)))
    return rows


def _fill(facts: Facts, size: int) -> None:
    apps = size // _APPS
    lines = [f"app {number % apps} -> depends_on -> library {number}" for number in range(size - apps)]
    lines += [f"app {number} -> runs_on -> version 0" for number in range(apps)]
    for at in range(0, len(lines), _AT_ONCE):
        facts.ingest("\n".join(lines[at : at + _AT_ONCE]))
    facts.query(limit=1)
