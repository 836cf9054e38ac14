"""The private files of a session: `files list`, `cat`, `put`, `rm`, `sync`, `evict`, `path`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import IO, Any

import click

import scratchbus
from scratchbus.cli.commands import ENGINE, BusGroup, at_option, session_memory
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.text import ago


@click.group(cls=BusGroup)
def files() -> None:
    """Keep private files of a session.

    They are outside of every workspace.
    """


@files.command("list", examples=("scratchbus files list --session s1",))
@at_option
@session_memory("files")
def ls(invocation: Invocation, files: scratchbus.Files, at: str | None) -> None:
    """Show the recorded files, by path."""
    _show(invocation, files.list() if at is None else files.as_of(at))


@files.command(examples=("scratchbus files sync --session s1",), shared=(*ENGINE, "source"))
@session_memory("files")
def sync(invocation: Invocation, files: scratchbus.Files) -> None:
    """Record changes that programs made in the directory.

    It records files they wrote or deleted, and evicts files beyond the limits.
    """
    _show(invocation, files.sync())


@files.command(examples=("scratchbus files cat notes/plan.md --session s1",))
@click.argument("path")
@session_memory("files")
def cat(invocation: Invocation, files: scratchbus.Files, path: str) -> None:
    """Print the content of a file; --json prints it as text."""
    content = files.read(path)
    if invocation.as_json or invocation.out.is_terminal:  # whose cursor a file must not move
        text = content.decode(errors="replace")
        invocation.out.text({"path": path, "content": text}, text.removesuffix("\n"))
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


@files.command(examples=("scratchbus files put check.py - --session s1 < check.py",))
@click.argument("path")
@click.argument("source", type=click.File("rb"), default="-")
@session_memory("files", writes=True)
def put(invocation: Invocation, files: scratchbus.Files, path: str, source: IO[bytes], **options: Any) -> None:
    """Write a file from another one.

    - reads SOURCE from standard input.
    """
    file = files.write(path, source.read(), **options)
    invocation.out.result(scratchbus.document_of(file), Cell("written", "green"), Cell(file.path, "bold"))


@files.command(examples=("scratchbus files rm check.py --session s1",))
@click.argument("path")
@session_memory("files", writes=True)
def rm(invocation: Invocation, files: scratchbus.Files, path: str, **options: Any) -> None:
    """Delete a file."""
    files.delete(path, **options)
    invocation.out.result({"path": path, "ok": True}, Cell("deleted", "green"), Cell(path))


@files.command("path", examples=("scratchbus files path --session s1",))
@click.argument("path", required=False)
@session_memory("files")
def show_path(invocation: Invocation, files: scratchbus.Files, path: str | None) -> None:
    """Print where the directory is, or a file in it; make the directory."""
    where = str(files.path(path))
    invocation.out.text({"path": where}, where)


@files.command(examples=("scratchbus files evict",), shared=(*ENGINE, "source"))
@pass_invocation
def evict(invocation: Invocation) -> None:
    """Evict files that are too old or too large.

    It does so in all sessions, including ended ones.
    """
    with invocation.connect() as bus:
        found = bus.evict_files()
    if invocation.as_json:
        invocation.out.document({"evicted": found})
    else:
        invocation.out.table(_EVICTED, [*found.items()], empty="Nothing was evicted")


_EVICTED: Columns[tuple[str, int]] = (
    Column("files", lambda each: Cell(str(each[1])), 5, right=True),
    Column("session", lambda each: Cell(each[0], "cyan")),
)


def _show(invocation: Invocation, found: list[scratchbus.ScratchFile]) -> None:
    now = datetime.now(UTC)
    columns: Columns[scratchbus.ScratchFile] = (
        Column("bytes", lambda each: Cell(str(each.size)), 9, right=True),
        Column("age", lambda each: Cell(ago(each.updated_at, now), "dim"), 4, right=True),
        Column("by", lambda each: Cell(each.source, "cyan"), 12),
        Column("path", lambda each: Cell(each.path, "bold")),
    )
    invocation.out.listing(columns, found, empty="There are no files")
