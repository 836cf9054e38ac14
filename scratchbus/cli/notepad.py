"""The notepad of a session: `notepad read`, `write`, `append`, `update`, `history`."""

from __future__ import annotations

from typing import Any

import click

from scratchbus.cli.arguments import content_of
from scratchbus.cli.commands import BusGroup, event_id_option, given, revision_option, session_option
from scratchbus.cli.event_view import show_history
from scratchbus.cli.output import Cell
from scratchbus.cli.session import Session, pass_session
from scratchbus.cli.text import paragraphs


@click.group(cls=BusGroup)
def notepad() -> None:
    """Read and edit the notepad of a session."""


@notepad.command(examples=("scratchbus notepad read --session s1",))
@click.option("--at", metavar="TIME|POS", help="Show it as it was at a time or position.")
@session_option
@pass_session
def read(session: Session, at: str | None, of: str) -> None:
    """Show the notepad."""
    with session.connect() as bus:
        pad = bus.notepad(of)
        content, revision = pad.read_with_revision() if at is None else (pad.as_of(at), None)
    if session.as_json:
        session.out.document({"session": of, "content": content, **given(revision=revision)})
    elif content:
        session.out.line(paragraphs(content) if session.out.is_terminal else content.removesuffix("\n"))
    else:
        session.out.note("The notepad is empty")


@notepad.command(examples=("scratchbus notepad write - --session s1 < plan.md",))
@click.argument("content")
@session_option
@revision_option
@event_id_option
@pass_session
def write(session: Session, content: str, of: str, revision: int | None, event_id: str | None) -> None:
    """Replace the content of the notepad.

    CONTENT may be empty; - reads it from standard input.
    """
    with session.connect() as bus:
        new = bus.notepad(of).write(content_of(content), revision=revision, event_id=event_id)
    _show_revision(session, "written", of, new)


@notepad.command(examples=('scratchbus notepad append "- Q3 is off by 45,000" --session s1',))
@click.argument("text")
@session_option
@event_id_option
@pass_session
def append(session: Session, text: str, of: str, event_id: str | None) -> None:
    """Append a text to the notepad, on a new line.

    - reads TEXT from standard input.
    """
    with session.connect() as bus:
        new = bus.notepad(of).append(content_of(text), line=True, event_id=event_id)
    _show_revision(session, "appended", of, new)


@notepad.command(
    "update", examples=('scratchbus notepad update find_replace --find "[ ] plan" --replace "[x] plan" --session s1',)
)  # fmt: skip
@click.argument("operation")
@click.option("--content", metavar="TEXT", help="The text to append, prepend or delete.")
@click.option("--find", metavar="TEXT", help="The exact text to replace.")
@click.option("--replace", metavar="TEXT", help="The new text.")
@click.option("--all", "replace_all", is_flag=True, help="Replace or delete every occurrence.")
@session_option
@event_id_option
@pass_session
def update_notepad(session: Session, operation: str, of: str, event_id: str | None, **edit: Any) -> None:
    """Edit the notepad: append, prepend, find_replace or delete."""
    with session.connect() as bus:
        new = bus.notepad(of).update(operation, event_id=event_id, **edit)
    _show_revision(session, "updated", of, new)


@notepad.command(examples=("scratchbus notepad history --session s1",))
@session_option
@pass_session
def history(session: Session, of: str) -> None:
    """Show all edits of the notepad, oldest first."""
    with session.connect() as bus:
        show_history(session, bus.notepad(of).history())


def _show_revision(session: Session, verb: str, of: str, revision: int) -> None:
    document = {"session": of, "ok": True, "revision": revision}
    session.out.result(document, Cell(verb, "green"), Cell(f"the notepad of {of}"))
