"""Play rounds of faults for some seconds, judge each, and say in numbers what came of it.

    python -m tests.faults.history [--seconds 180] [--seed 1] [--report FILE]

Every round lasts half a minute, and has a seed of its own that follows from the first. Ends with 1 when there is a
violation.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from tests.faults.history.case import History, Violation
from tests.faults.history.judge import judge
from tests.faults.history.report import sum_up, table
from tests.faults.history.round import play_round

ROUND = 30.0
"""Seconds of one round; they are judged one by one, so that their notes stay small."""

_SHOWN = 10  # violations; the report has them all


def main() -> int:
    given = argparse.ArgumentParser(prog="make faults", description="Kill, halt and cut off; see what is lost.")
    given.add_argument("--seconds", type=float, default=180.0, help="for how long things fail")
    given.add_argument("--seed", type=int, default=1, help="what is drawn from: the same seed, the same faults")
    given.add_argument("--report", type=Path, help="where to write the report, as JSON")
    options = given.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing goes on alone
    rounds: list[tuple[History, list[Violation]]] = []
    left = options.seconds
    while left > 0:
        seed, seconds = options.seed + len(rounds), min(ROUND, left)
        history = play_round(seconds, seed, tell=lambda line: _tell(f"seed {seed}: {line}"))  # noqa: B023  # called at once
        rounds.append((history, judge(history)))
        left -= seconds
    report = sum_up(options.seed, options.seconds, rounds)
    if options.report:
        options.report.write_text(json.dumps(report, indent=2))
    for found in report["found"][:_SHOWN]:
        _say("\n{kind}, {where}: {evidence}".format(**found))
    _say("\n" + table(report))
    return 1 if report["found"] else 0


def _tell(line: str) -> None:
    sys.stderr.write(f"\r{line:<78}")
    sys.stderr.flush()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
