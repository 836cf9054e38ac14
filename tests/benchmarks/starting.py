"""Starting: fresh processes that import scratchbus, or run one command, beside one that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import ROOT, Sizes, Stage, catch_up, fill

OPEN = 20

NOTHING = "python -c pass"


def measure_start(stage: Stage, sizes: Sizes) -> list[Row]:
    """Time whole processes, from before the first instruction to the end."""
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
    subprocess.run([sys.executable, *arguments], cwd=ROOT, env=_ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)


_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
