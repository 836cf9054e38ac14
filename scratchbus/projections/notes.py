"""The notes of a session: each is a document of its own."""

from __future__ import annotations

from typing import Any

from scratchbus.domain.event import Event
from scratchbus.domain.memories import Note
from scratchbus.domain.memory_events import NoteAdded, NoteDeleted, NoteUpdated
from scratchbus.projections.memory_document import create_document, update_document
from scratchbus.projections.projection import FoldError

PREFIX = "note_"
"""The prefix of a note's subject; the millisecond follows."""


def evolve(note: Note | None, event: Event) -> Note | None:
    """Return a note after an event; None once it is deleted or erased."""
    if isinstance(event, NoteAdded):
        return create_document(Note, event, id=event.subject, content=event.content, tags=event.tags, source=event.by)
    if event.kind == "erased":
        return None
    if isinstance(event, NoteUpdated | NoteDeleted):
        if note is None:
            raise FoldError(f"{event.kind} of a note that does not exist")
        if isinstance(event, NoteDeleted):
            return None
        changes: dict[str, Any] = {"content": event.content, "tags": event.tags}
        return update_document(note, event, **{name: value for name, value in changes.items() if value is not None})
    return note
