"""The notes of a session: `note add`, `scratch`, `search`, `list`, `update`, `delete`, `tags`, `history`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from scratchbus.cli.common import BusGroup, Session, event_id_option, pass_session, session_option
from scratchbus.cli.output import Cell, Heading
from scratchbus.cli.render import show_history
from scratchbus.cli.text import ago, one_line
from scratchbus.cli.values import content_of

if TYPE_CHECKING:
    from scratchbus.domain.memories import Note, NoteResult, NotesResult

_NOTE = (Heading("id", 18), Heading("age", 4, right=True), Heading("tags", 12), Heading("content"))


@click.group(cls=BusGroup)
def note() -> None:
    """Take, find and change the notes of a session."""


@note.command(examples=('scratchbus note add "Q3 is off by 45,000" --tag analysis --session s1',))
@click.argument("content")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be given several times.")
@session_option
@event_id_option
@pass_session
def add(session: Session, content: str, tags: tuple[str, ...], of: str, event_id: str | None) -> None:
    """Take a note. CONTENT may be `-`, for standard input."""
    with session.connect() as bus:
        _show_note(session, "added", bus.notes(of).add(content_of(content), list(tags), event_id=event_id))


@note.command(examples=('scratchbus note scratch "rows 234 to 267" --session s1',))
@click.argument("content")
@session_option
@event_id_option
@pass_session
def scratch(session: Session, content: str, of: str, event_id: str | None) -> None:
    """Take a note without tags."""
    with session.connect() as bus:
        _show_note(session, "added", bus.notes(of).scratch(content_of(content), event_id=event_id))


@note.command(examples=("scratchbus note search leak --tag analysis --session s1",))
@click.argument("query", default="")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="With this tag; with each of them.")
@session_option
@pass_session
def search(session: Session, query: str, tags: tuple[str, ...], of: str) -> None:
    """Find notes by a text in them and by tags, in any case; where the text comes early is first."""
    with session.connect() as bus:
        _show_notes(session, bus.notes(of).search(query, list(tags)))


@note.command("list", examples=("scratchbus note list --session s1",))
@click.option("--tag", metavar="TAG", help="With this tag.")
@session_option
@pass_session
def list_(session: Session, tag: str | None, of: str) -> None:
    """Show the notes, newest first."""
    with session.connect() as bus:
        _show_notes(session, bus.notes(of).list(tag))


@note.command(examples=('scratchbus note update note_1795256156929 --content "Q3 is right" --session s1',))
@click.argument("id")
@click.option("--content", metavar="TEXT", help="The new content; `-` for standard input.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="The new tags, instead of those it has.")
@click.option("--no-tags", is_flag=True, help="Take its tags away.")
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
    """Throw a note away; its history stays."""
    with session.connect() as bus:
        _show_note(session, "deleted", bus.notes(of).delete(id, event_id=event_id))


@note.command("tags", examples=("scratchbus note tags --session s1",))
@session_option
@pass_session
def list_tags(session: Session, of: str) -> None:
    """Show the tags in use, and how many notes have each."""
    with session.connect() as bus:
        found = bus.notes(of).tags()
    if session.as_json:
        session.out.document(found.tags)
    elif found.tags:
        headings = (Heading("notes", 5, right=True), Heading("tag"))
        session.out.table(
            headings, [[Cell(str(count)), Cell(one_line(tag), "cyan")] for tag, count in found.tags.items()]
        )
    else:
        session.out.note("No note has a tag.")


@note.command("history", examples=("scratchbus note history --session s1",))
@click.argument("id", required=False)
@session_option
@pass_session
def note_history(session: Session, id: str | None, of: str) -> None:
    """Show what happened to a note, or to all, oldest first; also when they are gone."""
    with session.connect() as bus:
        show_history(session, bus.notes(of).history(id))


def _show_note(session: Session, verb: str, result: NoteResult) -> None:
    if session.as_json:
        from scratchbus.cli.documents import note_document

        session.out.document({**result.model_dump(mode="json"), "note": note_document(result.note)})
    else:
        session.out.sentence(
            Cell(verb, "green"),
            Cell(result.note.id, "bold"),
            Cell(" ".join(f"#{one_line(tag)}" for tag in result.note.tags), "cyan"),
            Cell(one_line(result.note.content)),
        )


def _show_notes(session: Session, result: NotesResult) -> None:
    if session.as_json:
        from scratchbus.cli.documents import note_document

        for each in result.notes:
            session.out.document(note_document(each))
    elif result.notes:
        session.out.table(_NOTE, [_note_row(each) for each in result.notes])
    else:
        session.out.note("There are no such notes.")


def _note_row(note: Note) -> Sequence[Cell]:
    return (
        Cell(note.id, "bold"),
        Cell(ago(note.created_at, datetime.now(UTC)), "dim"),
        Cell(",".join(map(one_line, note.tags)), "cyan"),
        Cell(one_line(note.content)),
    )
