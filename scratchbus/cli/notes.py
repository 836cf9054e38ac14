"""The notes of a session: `note add`, `scratch`, `search`, `list`, `update`, `delete`, `tags`, `history`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

import scratchbus
from scratchbus.cli.commands import BusGroup, content_argument, content_option, session_memory
from scratchbus.cli.event_view import show_history
from scratchbus.cli.invocation import Invocation
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.text import ago, one_line

_TAG: Columns[tuple[str, int]] = (
    Column("notes", lambda each: Cell(str(each[1])), 5, right=True),
    Column("tag", lambda each: Cell(one_line(each[0]), "cyan")),
)


def _tags_option(help: str) -> Callable[..., Any]:
    return click.option("--tag", "tags", multiple=True, metavar="TAG", help=f"{help}; repeatable.")


@click.group(cls=BusGroup)
def note() -> None:
    """Add, search and change the notes of a session."""


@note.command(examples=('scratchbus note add "Q3 is off by 45,000" --tag analysis --session s1',))
@content_argument("content")
@_tags_option("A tag")
@session_memory("notes", writes=True)
def add(
    invocation: Invocation,
    notes: scratchbus.Notes,
    content: str,
    tags: tuple[str, ...],
    **options: Any,
) -> None:
    """Add a note.

    - reads CONTENT from standard input.
    """
    _show_note(invocation, "added", notes.add(content, list(tags), **options))


@note.command(examples=('scratchbus note scratch "rows 234 to 267" --session s1',))
@content_argument("content")
@session_memory("notes", writes=True)
def scratch(invocation: Invocation, notes: scratchbus.Notes, content: str, **options: Any) -> None:
    """Add a note without tags.

    - reads CONTENT from standard input.
    """
    _show_note(invocation, "added", notes.scratch(content, **options))


@note.command(examples=("scratchbus note search leak --tag analysis --session s1",))
@click.argument("query", default="")
@_tags_option("Only notes with this tag")
@session_memory("notes")
def search(invocation: Invocation, notes: scratchbus.Notes, query: str, tags: tuple[str, ...]) -> None:
    """Search notes by text and tags, ignoring case; early matches come first."""
    _show_notes(invocation, notes.search(query, list(tags)))


@note.command("list", examples=("scratchbus note list --session s1",))
@click.option("--tag", metavar="TAG", help="Only notes with this tag.")
@session_memory("notes")
def list_(invocation: Invocation, notes: scratchbus.Notes, tag: str | None) -> None:
    """Show the notes, newest first."""
    _show_notes(invocation, notes.list(tag))


@note.command(examples=('scratchbus note update note_1795256156929 --content "Q3 is right" --session s1',))
@click.argument("id")
@content_option("The new content; - reads it from standard input.")
@_tags_option("A new tag, instead of all current ones")
@click.option("--no-tags", is_flag=True, help="Remove its tags.")
@session_memory("notes", writes=True)
def update(
    invocation: Invocation,
    notes: scratchbus.Notes,
    id: str,
    tags: tuple[str, ...],
    no_tags: bool,
    **options: Any,
) -> None:
    """Replace the content of a note, its tags, or both."""
    _show_note(invocation, "updated", notes.update(id, tags=list(tags) if tags or no_tags else None, **options))


@note.command(examples=("scratchbus note delete note_1795256156929 --session s1",))
@click.argument("id")
@session_memory("notes", writes=True)
def delete(invocation: Invocation, notes: scratchbus.Notes, id: str, **options: Any) -> None:
    """Delete a note; its history stays."""
    _show_note(invocation, "deleted", notes.delete(id, **options))


@note.command("tags", examples=("scratchbus note tags --session s1",))
@session_memory("notes")
def list_tags(invocation: Invocation, notes: scratchbus.Notes) -> None:
    """Show the tags in use, each with its number of notes."""
    found = notes.tags().tags
    if invocation.as_json:
        invocation.out.document(found)
    else:
        invocation.out.table(_TAG, [*found.items()], empty="No note has a tag")


@note.command("history", examples=("scratchbus note history --session s1",))
@click.argument("id", required=False)
@session_memory("notes")
def note_history(invocation: Invocation, notes: scratchbus.Notes, id: str | None) -> None:
    """Show the events about a note, or all notes, oldest first, deleted ones included."""
    show_history(invocation, notes.history(id), is_of_many=id is None)


def _show_note(invocation: Invocation, verb: str, result: scratchbus.NoteResult) -> None:
    note = result.note
    invocation.out.result(
        {**result.model_dump(mode="json"), "note": scratchbus.document_of(note)},
        Cell(verb, "green"),
        Cell(note.id, "bold"),
        Cell(" ".join(f"#{one_line(tag)}" for tag in note.tags), "cyan"),
        Cell(one_line(note.content)),
    )


def _show_notes(invocation: Invocation, result: scratchbus.NotesResult) -> None:
    now = datetime.now(UTC)
    columns: Columns[scratchbus.Note] = (
        Column("id", lambda each: Cell(each.id, "bold"), 18),
        Column("age", lambda each: Cell(ago(each.created_at, now), "dim"), 4, right=True),
        Column("tags", lambda each: Cell(",".join(map(one_line, each.tags)), "cyan"), 12),
        Column("content", lambda each: Cell(one_line(each.content))),
    )
    invocation.out.listing(columns, result.notes, empty="There are no such notes")
