"""The notes of a session: `note add`, `scratch`, `search`, `list`, `update`, `delete`, `tags`, `history`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

import scratchbus
from scratchbus.cli.arguments import content_of
from scratchbus.cli.commands import BusGroup, event_id_option, session_option
from scratchbus.cli.event_view import show_history
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.session import Session, pass_session
from scratchbus.cli.text import ago, one_line

_TAG: Columns[tuple[str, int]] = (
    Column("notes", lambda each: Cell(str(each[1])), 5, right=True),
    Column("tag", lambda each: Cell(one_line(each[0]), "cyan")),
)


@click.group(cls=BusGroup)
def note() -> None:
    """Add, search and change the notes of a session."""


@note.command(examples=('scratchbus note add "Q3 is off by 45,000" --tag analysis --session s1',))
@click.argument("content")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag; repeatable.")
@session_option
@event_id_option
@pass_session
def add(session: Session, content: str, tags: tuple[str, ...], of: str, event_id: str | None) -> None:
    """Add a note.

    - reads CONTENT from standard input.
    """
    with session.connect() as bus:
        _show_note(session, "added", bus.notes(of).add(content_of(content), list(tags), event_id=event_id))


@note.command(examples=('scratchbus note scratch "rows 234 to 267" --session s1',))
@click.argument("content")
@session_option
@event_id_option
@pass_session
def scratch(session: Session, content: str, of: str, event_id: str | None) -> None:
    """Add a note without tags.

    - reads CONTENT from standard input.
    """
    with session.connect() as bus:
        _show_note(session, "added", bus.notes(of).scratch(content_of(content), event_id=event_id))


@note.command(examples=("scratchbus note search leak --tag analysis --session s1",))
@click.argument("query", default="")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only notes with this tag; repeatable.")
@session_option
@pass_session
def search(session: Session, query: str, tags: tuple[str, ...], of: str) -> None:
    """Search notes by text and tags, ignoring case; early matches come first."""
    with session.connect() as bus:
        _show_notes(session, bus.notes(of).search(query, list(tags)))


@note.command("list", examples=("scratchbus note list --session s1",))
@click.option("--tag", metavar="TAG", help="Only notes with this tag.")
@session_option
@pass_session
def list_(session: Session, tag: str | None, of: str) -> None:
    """Show the notes, newest first."""
    with session.connect() as bus:
        _show_notes(session, bus.notes(of).list(tag))


@note.command(examples=('scratchbus note update note_1795256156929 --content "Q3 is right" --session s1',))
@click.argument("id")
@click.option("--content", metavar="TEXT", help="The new content; - reads it from standard input.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A new tag, instead of all current ones; repeatable.")
@click.option("--no-tags", is_flag=True, help="Remove its tags.")
@session_option
@event_id_option
@pass_session
def update(
    session: Session, id: str, content: str | None, tags: tuple[str, ...], no_tags: bool, of: str, event_id: str | None
) -> None:
    """Replace the content of a note, its tags, or both."""
    text = None if content is None else content_of(content)
    new = list(tags) if tags or no_tags else None
    with session.connect() as bus:
        _show_note(session, "updated", bus.notes(of).update(id, text, new, event_id=event_id))


@note.command(examples=("scratchbus note delete note_1795256156929 --session s1",))
@click.argument("id")
@session_option
@event_id_option
@pass_session
def delete(session: Session, id: str, of: str, event_id: str | None) -> None:
    """Delete a note; its history stays."""
    with session.connect() as bus:
        _show_note(session, "deleted", bus.notes(of).delete(id, event_id=event_id))


@note.command("tags", examples=("scratchbus note tags --session s1",))
@session_option
@pass_session
def list_tags(session: Session, of: str) -> None:
    """Show the tags in use, each with its number of notes."""
    with session.connect() as bus:
        found = bus.notes(of).tags()
    if session.as_json:
        session.out.document(found.tags)
    else:
        session.out.table(_TAG, [*found.tags.items()], empty="No note has a tag")


@note.command("history", examples=("scratchbus note history --session s1",))
@click.argument("id", required=False)
@session_option
@pass_session
def note_history(session: Session, id: str | None, of: str) -> None:
    """Show the events about a note, or all notes, oldest first, deleted ones included."""
    with session.connect() as bus:
        show_history(session, bus.notes(of).history(id))


def _show_note(session: Session, verb: str, result: scratchbus.NoteResult) -> None:
    note = result.note
    session.out.result(
        {**result.model_dump(mode="json"), "note": scratchbus.document_of(note)},
        Cell(verb, "green"),
        Cell(note.id, "bold"),
        Cell(" ".join(f"#{one_line(tag)}" for tag in note.tags), "cyan"),
        Cell(one_line(note.content)),
    )


def _show_notes(session: Session, result: scratchbus.NotesResult) -> None:
    now = datetime.now(UTC)
    columns: Columns[scratchbus.Note] = (
        Column("id", lambda each: Cell(each.id, "bold"), 18),
        Column("age", lambda each: Cell(ago(each.created_at, now), "dim"), 4, right=True),
        Column("tags", lambda each: Cell(",".join(map(one_line, each.tags)), "cyan"), 12),
        Column("content", lambda each: Cell(one_line(each.content))),
    )
    session.out.listing(columns, result.notes, empty="There are no such notes")
