"""The notepad of a session: `notepad read`, `write`, `append`, `update`, `history`."""

from __future__ import annotations

from typing import Any

import click

from scratchbus.cli.common import (
    BusGroup,
    Session,
    event_id_option,
    given,
    pass_session,
    revision_option,
    session_option,
)
from scratchbus.cli.output import Cell
from scratchbus.cli.render import show_history
from scratchbus.cli.text import paragraphs
from scratchbus.cli.values import content_of


@click.group(cls=BusGroup)
def notepad() -> None:
    """Read and edit the notepad of a session."""


@notepad.command(examples=("scratchbus notepad read --session s1",))
@click.option("--at", metavar="TIME|POS", help="As it was then.")
@session_option
@pass_session
def read(session: Session, at: str | None, of: str) -> None:
    """Show what is on the notepad."""
    with session.connect() as bus:
        pad = bus.notepad(of)
        content, revision = pad.read_with_revision() if at is None else (pad.as_of(at), None)
    if session.as_json:
        session.out.document({"session": of, "content": content, **given(revision=revision)})
    elif content:
        session.out.line(paragraphs(content) if session.out.is_terminal else content.removesuffix("\n"))
    else:
        session.out.note("The notepad is empty.")


@notepad.command(examples=("scratchbus notepad write - --session s1 < plan.md",))
@click.argument("content")
@session_option
@revision_option
@event_id_option
@pass_session
def write(session: Session, content: str, of: str, revision: int | None, event_id: str | None) -> None:
    """Replace all that is on the notepad. CONTENT may be `-`, for standard input, or empty."""
    with session.connect() as bus:
        new = bus.notepad(of).write(content_of(content), revision=revision, event_id=event_id)
    _say(session, "written", of, new)


@notepad.command(examples=('scratchbus notepad append "- Q3 is off by 45,000" --session s1',))
@click.argument("text")
@session_option
@event_id_option
@pass_session
def append(session: Session, text: str, of: str, event_id: str | None) -> None:
    """Put a text behind what is on the notepad, on a line of its own. TEXT may be `-`, for standard input."""
    with session.connect() as bus:
        new = bus.notepad(of).append(content_of(text), line=True, event_id=event_id)
    _say(session, "appended", of, new)


@notepad.command(
    "update", examples=('scratchbus notepad update find_replace --find "[ ] plan" --replace "[x] plan" --session s1',)
)  # fmt: skip
@click.argument("operation")
@click.option("--content", metavar="TEXT", help="What is appended, prepended or deleted.")
@click.option("--find", metavar="TEXT", help="The exact text to replace.")
@click.option("--replace", metavar="TEXT", help="What comes in its place.")
@click.option("--all", "replace_all", is_flag=True, help="All of it, when it is there several times.")
@session_option
@event_id_option
@pass_session
def update_notepad(session: Session, operation: str, of: str, event_id: str | None, **edit: Any) -> None:
    """Edit a part of the notepad: append, prepend, find_replace or delete."""
    with session.connect() as bus:
        new = bus.notepad(of).update(operation, event_id=event_id, **edit)
    _say(session, "updated", of, new)


@notepad.command(examples=("scratchbus notepad history --session s1",))
@session_option
@pass_session
def history(session: Session, of: str) -> None:
    """Show all edits of the notepad, oldest first."""
    with session.connect() as bus:
        show_history(session, bus.notepad(of).history())


def _say(session: Session, verb: str, of: str, revision: int) -> None:
    if session.as_json:
        session.out.document({"session": of, "ok": True, "revision": revision})
    else:
        session.out.sentence(Cell(verb, "green"), Cell(f"the notepad of {of}"))
