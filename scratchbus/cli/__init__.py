"""The command line `scratchbus`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_DEFAULT_COLUMNS, _MAX_COLUMNS = 80, 100
"""The widths for which help is stored: the default of pipes and most terminals, and the maximum."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:  # while something was imported
        return 130


def _run(given: list[str]) -> int:
    _replace_closed_streams()
    _escape_unknown_characters()
    columns = min(_columns(), _MAX_COLUMNS)
    if given in (["--help"], ["-h"]) and columns in (_DEFAULT_COLUMNS, _MAX_COLUMNS):
        try:
            sys.stdout.write(_help(columns))
            sys.stdout.flush()
        except OSError:
            pass  # nobody reads it, or the file is not there; the command below deals with both
        else:
            return 0
    from scratchbus.cli.startup import uncollected

    with uncollected():
        from scratchbus.cli.shell import run_command  # late: importing the commands takes 150 ms on a slow machine
    return run_command(given)


def _replace_closed_streams() -> None:
    """Open the null device for standard streams that were closed, so that no connection gets the descriptor of one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # for as long as the process runs


def _escape_unknown_characters() -> None:
    """Print an escape for each character that the encoding of standard output lacks, as standard error does."""
    if sys.stdout.errors in ("strict", "surrogateescape") and not sys.stdout.encoding.lower().startswith("utf"):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _help(columns: int) -> str:
    """Return the help of the whole command line, as `tools/generate_help.py` has written it from the commands."""
    with open(os.path.join(os.path.dirname(__file__), f"help_{columns}.txt"), encoding="utf-8") as file:
        return file.read()


def _columns() -> int:
    """Return the width of the terminal like `shutil.get_terminal_size`, whose import is slow."""
    try:
        columns = int(os.environ.get("COLUMNS", "0"))
    except ValueError:
        columns = 0
    if columns > 0:
        return columns
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _DEFAULT_COLUMNS  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return _DEFAULT_COLUMNS
