"""Write what `scratchbus --help` prints into files, so that printing it needs no import of any command.

`make generate` writes `scratchbus/cli/help_*.txt`, and `make check` fails when one is stale.
"""

from __future__ import annotations

import sys

from scratchbus.cli.root import root
from scratchbus.cli.shell_completion import PROGRAM
from tools.generated import ROOT, write_or_check

FOLDER = ROOT / "scratchbus" / "cli"
COLUMNS = (80, 100)


def text(columns: int) -> str:
    """Return the help as it is printed on a terminal with so many columns."""
    with root.make_context(PROGRAM, [], resilient_parsing=True, terminal_width=columns - 2) as context:
        return root.get_help(context) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check({FOLDER / f"help_{columns}.txt": text(columns) for columns in COLUMNS}))
