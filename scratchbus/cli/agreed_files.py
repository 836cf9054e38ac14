"""Writing files that a person has seen and agreed to."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from scratchbus.cli.invocation import Invocation
from scratchbus.daemon import replace_file
from scratchbus.errors import SettingsError


def write_files(invocation: Invocation, files: Mapping[Path, str], *, is_agreed: bool, mode: int = 0o666) -> bool:
    """Write files, and the directories they are in; show and ask first, unless it is agreed. Return whether it did.

    Raises UsageError without a terminal to ask on, and SettingsError.
    """
    if not (is_agreed or _ask_to_write(files)):
        invocation.out.note("Nothing was written")
        return False
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(Path(os.path.realpath(path)), text.encode(), mode)  # a link keeps its target
        except OSError as problem:
            raise SettingsError(f"{path}: cannot be written: {problem.strerror}") from None
    return True


def _ask_to_write(files: Mapping[Path, str]) -> bool:
    """Show files and ask whether to write them; return the answer. Raises UsageError without a terminal to ask on."""
    for path, text in files.items():
        click.echo(f"{path}:\n{text}", err=True)
    try:
        return click.confirm("Write this?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("nothing was written, since there is no terminal to ask on; add --yes") from None
