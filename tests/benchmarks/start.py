"""Starting: new processes that import scratchbus or run one command, against one that does nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import ROOT, Sizes, Stage, catch_up, fill

OPEN = 20

NOTHING = "python -c pass"
FIRST_ANSWERS = "scratchbus mcp: initialize, tools/list and its end"


def measure_start(stage: Stage, sizes: Sizes) -> list[Row]:
    """Time whole processes, from start to exit."""
    bus = stage.bus("start")
    fill(bus.page(), OPEN)
    catch_up(bus)
    program = ("-m", "scratchbus.cli")
    ways: dict[str, tuple[tuple[str, ...], float | None]] = {
        "import scratchbus": (("-c", "import scratchbus"), 0.12),
        "from scratchbus import Bus": (("-c", "from scratchbus import Bus"), 0.12),
        "from pydantic import BaseModel": (("-c", "from pydantic import BaseModel"), None),
        "scratchbus --help": ((*program, "--help"), 0.1),
        f"scratchbus active, {OPEN} open": ((*program, "--url", stage.url, "--bus", "start", "active"), 0.25),
        FIRST_ANSWERS: ((*program, "--url", stage.url, "--bus", "start", "mcp", "--agent", "bench"), 0.8),
    }
    taken = interleave(
        sizes.starts,
        Side(NOTHING, 1, partial(_run, "-c", "pass")),
        *(Side(what, 1, partial(_run, *arguments)) for what, (arguments, _) in ways.items()),
    )
    return [
        times(taken, what, NOTHING, floor=None if aim is None else Floor("ours", "at most", aim))
        for what, (_, aim) in ways.items()
    ]


def _run(*arguments: str) -> None:
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=ROOT, env=_ENVIRONMENT, stdout=subprocess.DEVNULL, check=True, input=_REQUESTS)


_INFO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
_REQUESTS = b"".join(
    json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}).encode() + b"\n"
    for method, params in (("initialize", _INFO), ("tools/list", {}))
)
"""The standard input of each process; only the MCP server reads it."""

_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
