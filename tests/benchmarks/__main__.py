"""`make bench`: measure scratchbus against bare redis-py on the embedded engine, side by side, in one run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from tests.benchmarks import report
from tests.benchmarks.additions import measure_add, measure_async, measure_batch, measure_latency, measure_threads
from tests.benchmarks.archive import measure_archive
from tests.benchmarks.audit import measure_audit
from tests.benchmarks.contexts import measure_context
from tests.benchmarks.delivery import measure_delivery, measure_subscribe
from tests.benchmarks.facts import measure_facts
from tests.benchmarks.fold import measure_fold
from tests.benchmarks.followers import measure_crowd
from tests.benchmarks.growth import measure_growth
from tests.benchmarks.http_api import measure_serve
from tests.benchmarks.langgraph_store import measure_langgraph
from tests.benchmarks.mcp_tools import measure_tools
from tests.benchmarks.memory import measure_memory
from tests.benchmarks.notes import measure_notes
from tests.benchmarks.reads import measure_active, measure_events
from tests.benchmarks.rebuild import measure_rebuild
from tests.benchmarks.recall import measure_recall
from tests.benchmarks.rows import Row
from tests.benchmarks.stage import FULL, QUICK, Sizes, Stage, ignore_settings, open_stage
from tests.benchmarks.start import measure_start
from tests.benchmarks.streams import measure_streams
from tests.benchmarks.views import measure_view, measure_view_start

PARTS: dict[str, Callable[[Stage, Sizes], list[Row]]] = {
    "add": measure_add,
    "latency": measure_latency,
    "batch": measure_batch,
    "async": measure_async,
    "threads": measure_threads,
    "fold": measure_fold,
    "active": measure_active,
    "events": measure_events,
    "context": measure_context,
    "view": measure_view,
    "view-start": measure_view_start,
    "delivery": measure_delivery,
    "subscribe": measure_subscribe,
    "crowd": measure_crowd,
    "streams": measure_streams,
    "rebuild": measure_rebuild,
    "audit": measure_audit,
    "archive": measure_archive,
    "tools": measure_tools,
    "serve": measure_serve,
    "start": measure_start,
    "growth": measure_growth,
    "notes": measure_notes,
    "recall": measure_recall,
    "facts": measure_facts,
    "langgraph": measure_langgraph,
    "memory": measure_memory,
}
DEFAULT_JSON = Path(__file__).parents[2] / "build" / "benchmark.json"


def measure(
    names: Iterable[str], sizes: Sizes, say: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    """Measure parts, each on a new engine; return a description of the run, and the rows by part."""
    about: dict[str, Any] = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "sizes": asdict(sizes)}
    rows: dict[str, list[Row]] = {}
    for name in names:
        begin = perf_counter()
        with open_stage() as stage:
            about.setdefault("machine", report.machine(stage.bare))
            rows[name] = PARTS[name](stage, sizes)
        say(f"measured {name} in {perf_counter() - begin:.0f} s")
    return about, rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--quick", is_flag=True, help="Use small sizes, for three minutes instead of fifteen; the aims are for full sizes."
)
@click.option(
    "--only", "only", multiple=True, type=click.Choice(list(PARTS)), help="Measure only this part; repeatable."
)
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_JSON,
    help="Where to save the figures as JSON.",
)
@click.option("--audited", type=int, help="Number of events in the audited log.")
@click.option(
    "--markdown", type=click.Path(dir_okay=False, path_type=Path), help="Where to save the table as Markdown."
)
@click.option("--strict", is_flag=True, help="Exit with 1 when a floor is missed.")
def main(
    quick: bool, only: tuple[str, ...], file: Path, audited: int | None, markdown: Path | None, strict: bool
) -> None:
    """Measure scratchbus against bare redis-py, side by side, on a private embedded engine."""
    ignore_settings()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engine is stopped too
    sizes = QUICK if quick else FULL
    sizes = replace(sizes, audited=audited or sizes.audited)
    about, rows = measure(dict.fromkeys(only) or PARTS, sizes, lambda text: click.echo(text, err=True))
    report.show(report.console(), about, rows)
    report.save(file, about, rows)
    click.echo(f"saved to {file}", err=True)
    if markdown is not None:
        markdown.write_text(report.markdown(about, rows))
    if quick:
        click.echo("quick: small sizes; run it without --quick for the real figures", err=True)
    if strict and any(row.reached is False for part in rows.values() for row in part):
        sys.exit(1)


if __name__ == "__main__":
    main()
