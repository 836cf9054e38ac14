"""Writing files that a person has seen and agreed to."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from scratchbus.cli.invocation import Invocation
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
            _replace(path, text, mode)
        except OSError as problem:
            raise SettingsError(f"{path}: cannot be written: {problem.strerror}") from None
    return True


def _replace(path: Path, text: str, mode: int) -> None:
    """Write a file whole or not at all: one that is there keeps its mode, and a link its target. Raises OSError."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".scratchbus-{os.urandom(8).hex()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


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
