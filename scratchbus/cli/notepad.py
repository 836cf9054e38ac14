"""The notepad of a session: `notepad read`, `write`, `append`, `update`, `history`."""

from __future__ import annotations

from typing import Any

import click

import scratchbus
from scratchbus.cli.commands import BusGroup, content_argument, given, revision_option, session_memory
from scratchbus.cli.event_view import show_history
from scratchbus.cli.invocation import Invocation
from scratchbus.cli.output import Cell, paragraphs


@click.group(cls=BusGroup)
def notepad() -> None:
    """Read and edit the notepad of a session."""


@notepad.command(examples=("scratchbus notepad read --session s1",))
@click.option("--at", metavar="TIME|POS", help="Show it at a past time or position.")
@session_memory("notepad")
def read(invocation: Invocation, pad: scratchbus.Notepad, at: str | None) -> None:
    """Show the notepad."""
    content, revision = pad.read_with_revision() if at is None else (pad.as_of(at), None)
    if invocation.as_json:
        invocation.out.document({"session": invocation.owner, "content": content, **given(revision=revision)})
    elif content:
        invocation.out.line(paragraphs(content) if invocation.out.is_terminal else content.removesuffix("\n"))
    else:
        invocation.out.note("The notepad is empty")


@notepad.command(examples=("scratchbus notepad write - --session s1 < plan.md",))
@content_argument("content")
@revision_option
@session_memory("notepad", writes=True)
def write(invocation: Invocation, pad: scratchbus.Notepad, content: str, **options: Any) -> None:
    """Replace the content of the notepad.

    CONTENT may be empty; - reads it from standard input.
    """
    _show_revision(invocation, "written to", pad.write(content, **options))


@notepad.command(examples=('scratchbus notepad append "- Q3 is off by 45,000" --session s1',))
@content_argument("text")
@session_memory("notepad", writes=True)
def append(invocation: Invocation, pad: scratchbus.Notepad, text: str, **options: Any) -> None:
    """Append a text to the notepad, on a new line.

    - reads TEXT from standard input.
    """
    _show_revision(invocation, "appended to", pad.append(text, line=True, **options))


@notepad.command(
    "update", examples=('scratchbus notepad update find_replace --find "[ ] plan" --replace "[x] plan" --session s1',)
)  # fmt: skip
@click.argument("operation")
@click.option("--content", metavar="TEXT", help="The text to append, prepend or delete.")
@click.option("--find", metavar="TEXT", help="The exact text to replace.")
@click.option("--replace", metavar="TEXT", help="The new text.")
@click.option("--all", "replace_all", is_flag=True, help="Replace or delete every occurrence.")
@session_memory("notepad", writes=True)
def update_notepad(invocation: Invocation, pad: scratchbus.Notepad, operation: str, **edit: Any) -> None:
    """Edit the notepad: append, prepend, find_replace or delete."""
    _show_revision(invocation, "updated", pad.update(operation, **edit))


@notepad.command(examples=("scratchbus notepad history --session s1",))
@session_memory("notepad")
def history(invocation: Invocation, pad: scratchbus.Notepad) -> None:
    """Show all edits of the notepad, oldest first."""
    show_history(invocation, pad.history())


def _show_revision(invocation: Invocation, verb: str, revision: int) -> None:
    document = {"session": invocation.owner, "ok": True, "revision": revision}
    invocation.out.result(document, Cell(verb, "green"), Cell(f"the notepad of {invocation.owner}"))
