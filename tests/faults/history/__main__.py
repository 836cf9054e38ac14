"""Play rounds of faults for some seconds, judge each, and print a report.

    python -m tests.faults.history [--seconds 180] [--seed 1] [--older REV | --older none] [--report FILE]
        [--keep DIRECTORY]
    python -m tests.faults.history --soak [--seconds 3600] [--memory-limit 400] [--disk-limit 2000] [--report FILE]

Every round lasts half a minute, and has its own seed, counted up from the first. Half of the processes of every second
round run an earlier version of the code. With --soak there are no faults, all roles work at a moderate rate, and memory
and disk are measured. The exit code is 1 if there is a violation. With --keep, the history of a round with a violation
is kept, so that it can be judged again: `judge(pickle.load(file))`.
"""

from __future__ import annotations

import argparse
import json
import pickle
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.history.case import History, Violation
from tests.faults.history.judge import judge
from tests.faults.history.older import NoOlderVersion, check_out, default_revision
from tests.faults.history.plan import DECK, playable
from tests.faults.history.report import sum_up, table
from tests.faults.history.round import play_round, short_directory
from tests.faults.history.soak import Limits, soak, summary
from tests.faults.history.soak import table as measured

ROUND = 30.0
"""Seconds of one round; rounds are judged one by one, so that their records stay small."""

_SHOWN = 10  # violations; the report has them all


def main() -> int:
    given = argparse.ArgumentParser(
        prog="make faults", description="Inject faults into processes and engines, and report broken promises."
    )
    given.add_argument("--seconds", type=float, default=180.0, help="the duration of the faults")
    given.add_argument("--seed", type=int, default=1, help="the same seed draws the same faults")
    given.add_argument(
        "--older", default="", help="the revision that some processes run in every second round, or none"
    )
    given.add_argument("--report", type=Path, help="where to write the report, as JSON")
    given.add_argument("--keep", type=Path, help="where to keep the histories of rounds with violations")
    given.add_argument("--soak", action="store_true", help="run without faults, and measure memory and disk")
    given.add_argument("--memory-limit", type=float, default=400.0, help="MB for each process and engine, in a soak")
    given.add_argument("--disk-limit", type=float, default=2000.0, help="MB for engines and archive, in a soak")
    options = given.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process outlives this one
    report, text = _soak(options) if options.soak else _fail(options)
    if options.report:
        options.report.write_text(json.dumps(report, indent=2))
    for found in report["found"][:_SHOWN]:
        _say("\n{kind}, {where}: {evidence}".format(**found))
    _say("\n" + text)
    return 1 if report["found"] else 0


def _soak(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Measure; return the report, also as text."""
    limits = Limits(options.memory_limit, options.disk_limit)
    series, found = soak(options.seconds, options.seed, limits, tell=_tell)
    report = {
        "seed": options.seed, "seconds": options.seconds, "limits": limits._asdict(), "MB": summary(series),
        "samples": series, "found": [each._asdict() for each in found],
    }  # fmt: skip
    return report, measured(summary(series))


def _fail(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Play rounds; return the report, also as text."""
    with short_directory() as directory:
        older, notes = _older(options.older, directory)
        rounds, tally = _play(options.seconds, options.seed, older, options.keep)
    notes += [f"no C compiler: left out {kind}" for kind in DECK if kind not in playable()]
    report = sum_up(options.seed, options.seconds, rounds, tally, notes)
    return report, table(report)


def _older(revision: str, directory: Path) -> tuple[Path | None, list[str]]:
    """Return the directory of the older version, if there is one, and a note for the report."""
    if revision == "none":
        return None, ["older version: none, as was asked for"]
    try:
        name = check_out(revision or default_revision(), directory)
    except NoOlderVersion as problem:
        return None, [f"older version: left out, {problem}"]
    return directory, [f"older version: {name}, in every second round"]


def _play(
    seconds: float, first: int, older: Path | None, keep: Path | None
) -> tuple[list[tuple[History, list[Violation]]], Counter[str]]:
    """Play and judge rounds until the seconds are over."""
    rounds: list[tuple[History, list[Violation]]] = []
    tally, left = Counter[str](), seconds
    while left > 0:
        seed, lasts = first + len(rounds), min(ROUND, left)
        history = play_round(
            lasts, seed, tell=lambda line: _tell(f"seed {seed}: {line}"),  # noqa: B023  # called immediately
            older=older if len(rounds) % 2 else None,
        )  # fmt: skip
        found = judge(history, tally)
        rounds.append((history, found))
        if found and keep:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"seed-{seed}.pickle").write_bytes(pickle.dumps(history))
        left -= lasts
    return rounds, tally


def _tell(line: str) -> None:
    """Show the progress on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{line:<78}")
        sys.stderr.flush()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
