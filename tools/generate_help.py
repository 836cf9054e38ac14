"""Write what `scratchbus --help` prints into files, so that printing it needs no import of any command.

`make generate` writes `scratchbus/cli/help_*.txt`, and `make check` fails when one is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scratchbus.cli.root import root
from scratchbus.cli.shell_completion import PROGRAM

FOLDER = Path(__file__).parents[1] / "scratchbus" / "cli"
COLUMNS = (80, 100)


def text(columns: int) -> str:
    """Return the help as it is printed on a terminal with so many columns."""
    with root.make_context(PROGRAM, [], resilient_parsing=True, terminal_width=columns - 2) as context:
        return root.get_help(context) + "\n"


def main() -> int:
    """Write the files, or with `--check` say which are stale."""
    texts = {FOLDER / f"help_{columns}.txt": text(columns) for columns in COLUMNS}
    stale = [file for file, said in texts.items() if not file.exists() or file.read_text("utf-8") != said]
    if "--check" in sys.argv and stale:
        print(f"stale: {', '.join(file.name for file in stale)}; run `make generate`", file=sys.stderr)
        return 1
    for file in stale:
        file.write_text(texts[file], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
