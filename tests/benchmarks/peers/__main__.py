"""`make bench-peers`: measure scratchbus against other libraries, side by side, in one run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from tests.benchmarks import report
from tests.benchmarks.peers.with_eventsourcing import measure_eventsourcing
from tests.benchmarks.peers.with_faststream import measure_faststream
from tests.benchmarks.rows import Row
from tests.benchmarks.stage import Stage, open_stage

PEERS: dict[str, Callable[[Stage, int, int], list[Row]]] = {
    "faststream": measure_faststream,
    "eventsourcing": measure_eventsourcing,
}
"""The measurement against each library, by the name of its package."""

DEFAULT_JSON = Path(__file__).parents[3] / "build" / "benchmark-peers.json"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", type=click.Choice([*PEERS]), help="Measure only against this library.")
@click.option("--rounds", default=7, show_default=True, help="Number of measured rounds.")
@click.option("--events", default=3_000, show_default=True, help="Number of events that are published and consumed.")
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_JSON,
    help="Where to save the figures as JSON.",
)
def main(only: str | None, rounds: int, events: int, file: Path) -> None:
    """Measure scratchbus against other libraries, side by side, on a private embedded engine."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engine is stopped too
    about = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "rounds": rounds, "events": events}
    rows: dict[str, list[Row]] = {}
    for name in [only] if only else PEERS:
        click.echo(f"measuring against {name}", err=True)
        with open_stage() as stage:
            if "machine" not in about:
                about["machine"] = report.machine(stage.bare, *PEERS)
            rows[name] = PEERS[name](stage, rounds, events)
    report.show(report.console(), about, rows)
    report.save(file, about, rows)
    click.echo(f"saved to {file}", err=True)


if __name__ == "__main__":
    main()
