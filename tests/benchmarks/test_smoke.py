"""The benchmark runs, and its ratios are right. No test depends on a speed."""

import gc
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.benchmarks import report, size_growth
from tests.benchmarks.__main__ import PARTS
from tests.benchmarks.measure import Side, interleave, pairwise, percentile, spread
from tests.benchmarks.rows import Floor, Row, rates, times
from tests.benchmarks.stage import Sizes, Stage, open_stage
from tests.log.engine_processes import is_alive

TINY = Sizes(
    rounds=1, adds=4, batches=1, backlog=10, reads=2, small_page=25, large_page=50, memory=(20,),
    followers=8, published=5, audited=1_000, starts=1,
    notes=200, facts=200,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_to_collect() -> None:
    """Exempt objects of other tests from the collections before each measurement, which would take most of the time."""
    gc.freeze()


TAKEN = {"ours": [0.2, 0.4, 0.3], "theirs": [0.1, 0.1, 0.3]}
"""Seconds per operation: 2, 4 and 1 times as long as theirs."""


def test_a_ratio_is_computed_round_by_round():
    assert pairwise([2.0, 8.0, 3.0], [1.0, 2.0, 3.0]).median == 2.0


def test_times_compare_seconds_per_operation():
    row = times(TAKEN, "ours", "theirs")
    assert (row.ours, row.theirs, row.ratio.median) == pytest.approx((0.3, 0.1, 2.0))


def test_rates_compare_operations_per_second():
    row = rates(TAKEN, "ours", "theirs")
    assert (row.ours, row.theirs, row.ratio.median) == pytest.approx((1 / 0.3, 10, 0.5))


def test_a_spread_lies_between_the_quartiles():
    assert spread([5.0, 1.0, 4.0, 2.0, 3.0]) == (2.0, 3.0, 4.0)
    assert spread([7.0]) == (7.0, 7.0, 7.0)


def test_percentile_interpolates_between_samples():
    samples = [float(number) for number in range(101)]
    assert percentile(samples, 50) == 50
    assert percentile(samples, 99) == pytest.approx(99)


@pytest.mark.parametrize(
    ("floor", "reached"),
    [
        (Floor("ratio", "at least", 2.0), True),
        (Floor("ratio", "at least", 2.1), False),
        (Floor("ratio", "at most", 2.0), True),
        (Floor("ratio", "at most", 1.9), False),
        (Floor("ours", "at most", 0.3), True),
        (Floor("ours", "at least", 0.5), False),
        (None, None),
    ],
)
def test_a_floor_bounds_from_below_or_above(floor, reached):
    assert times(TAKEN, "ours", "theirs", floor=floor).reached is reached


def test_each_side_runs_once_a_round_and_the_first_one_rotates():
    ran: list[str] = []
    taken = interleave(
        2,
        Side("a", 1, lambda: ran.append("a")),
        Side("b", 1, lambda: ran.append("b"), lambda: ran.append("ready")),
    )
    assert ran == ["a", "ready", "b", "ready", "b", "a", "a", "ready", "b"]
    assert {name: len(samples) for name, samples in taken.items()} == {"a": 2, "b": 2}


def test_the_time_of_a_side_is_divided_by_its_operations(monkeypatch):
    clock = iter([0.0, 1.0, 10.0, 14.0])
    monkeypatch.setattr("tests.benchmarks.measure.perf_counter", lambda: next(clock))
    assert interleave(1, Side("a", 8, lambda: None)) == {"a": [0.5]}


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_each_part_measures_on_a_real_engine(part: str, tmp_path: Path):
    with open_stage() as stage:
        rows = PARTS[part](stage, TINY)
        about = {"machine": report.machine(stage.bare), "sizes": {}}
    assert all(row.ours > 0 for row in rows if row.unit != "bytes")
    aimed = [row for row in rows if row.floor is not None]
    assert aimed
    assert all(row.reached is not None for row in aimed)
    console = Console(record=True, width=report.WIDE, file=(tmp_path / "out.txt").open("w"))
    report.show(console, about, {part: rows})
    console.file.close()
    text = console.export_text()
    assert all(row.what in text and row.against in text for row in rows)
    report.save(tmp_path / "new" / "bench.json", about, {part: rows})
    saved = json.loads((tmp_path / "new" / "bench.json").read_text())
    assert saved["parts"].keys() == {part}
    assert saved["machine"]["engine"]


def test_a_failing_part_leaves_no_engine_behind():
    pids: list[int] = []

    def fail(stage: Stage) -> None:
        pids.append(stage.bare.info("server")["process_id"])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), open_stage() as stage:
        fail(stage)
    assert not Path(stage.url.removeprefix("embedded:")).parent.exists()
    assert not stage.socket.exists()
    assert not is_alive(*pids)


def test_a_floor_without_a_ratio_is_missed():
    assert Row("a", "b", "bytes", 1.0, floor=Floor("ratio", "at least", 1)).reached is False


@pytest.mark.slow
def test_growth_is_measured_for_pages_logs_buses_and_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_growth, "TIMES", 3)
    done = CliRunner().invoke(size_growth.main, ["--size", "300", "--pages", "3", "--archived", "1500"])
    assert done.exit_code == 0, done.output
    for title in ("open observations", "events in the log", "pages", "events in the archive"):
        assert title in done.output
    assert "1.00×" in done.output
