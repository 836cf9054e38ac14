"""Take, find and change the notes of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory import append_new, edit, remove
from scratchbus.commands.memory_edit import MemoryEdit, Revision, check_based_on
from scratchbus.commands.memory_reads import read_memory
from scratchbus.domain.checks import check_not_blank, check_tags
from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.memories import Note, NoteResult, NotesResult, TagsResult
from scratchbus.domain.memory_events import NoteAdded, NoteDeleted, NoteUpdated
from scratchbus.domain.models import CheckedBy, trusted
from scratchbus.domain.values import SESSION_PAGES, check_memory_id
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, NotFound, TooLarge, shown
from scratchbus.projections.notebook import Notebook
from scratchbus.projections.notes import PREFIX, evolve
from scratchbus.readmodel.memory_history import history_of, history_of_all
from scratchbus.readmodel.scope import Core
from scratchbus.settings import Settings

_MAX_GIVEN_TAGS = 1_000  # tags that are checked

_Content = CheckedBy(partial(check_not_blank, "content", advice="say what is worth noting, or delete the note"))
_Tags = CheckedBy(partial(check_tags, maximum=_MAX_GIVEN_TAGS))


class AddNote(MemoryEdit):
    """Take a note; the append script gives it its id."""

    verb, subject = "add_note", PREFIX
    content: Annotated[str, _Content]
    tags: Annotated[list[str], _Tags]

    def decide(self, occasion: Occasion, document: Note | None) -> Event:
        """See `MemoryEdit`."""
        _check_size(occasion.settings, self.content, self.tags)
        return occasion.event(NoteAdded, PREFIX, content=self.content, tags=self.tags)


class _NoteEdit(MemoryEdit):
    """An edit of an existing note."""

    id: Annotated[str, CheckedBy(partial(check_memory_id, "note"))]
    revision: Revision = None

    @property
    def about(self) -> str:
        """See `MemoryEdit`."""
        return self.id

    def check(self, occasion: Occasion, document: Note | None) -> None:
        """Raise NotFound unless the note exists, RevisionConflict unless it is at the given revision."""
        if document is None:
            raise _not_found(occasion.page, self.id)
        check_based_on("note", self.revision, document.version, document.content)


class UpdateNote(_NoteEdit):
    """Replace the content of a note, its tags, or both."""

    verb = "update_note"
    content: Annotated[str | None, _Content] = None
    tags: Annotated[list[str] | None, _Tags] = None

    def decide(self, occasion: Occasion, document: Note | None) -> Event:
        """See `MemoryEdit`."""
        if self.content is None and self.tags is None:
            raise InvalidField("content", "nothing to change; give content, tags, or both")
        _check_size(occasion.settings, self.content or "", self.tags or [])
        self.check(occasion, document)
        return occasion.event(NoteUpdated, self.id, content=self.content, tags=self.tags)


class DeleteNote(_NoteEdit):
    """Delete a note."""

    verb = "delete_note"
    ends_as = "deleted"

    def decide(self, occasion: Occasion, document: Note | None) -> Event:
        """See `MemoryEdit`."""
        self.check(occasion, document)
        return occasion.event(NoteDeleted, self.id)


def add(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[NoteResult]:
    """Take a note."""
    command = AddNote.parse(arguments)
    occasion = command.on(core, page)
    event = yield from append_new(core, occasion, command.decide(occasion, None))
    return (yield from _result(core, page, evolve(None, event), "Added"))


def update(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[NoteResult]:
    """Replace the content of a note, its tags, or both."""
    note = yield from edit(core, page, UpdateNote.parse(arguments))
    return (yield from _result(core, page, note, "Updated"))


def delete(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[NoteResult]:
    """Delete a note; return its last state."""
    note = yield from remove(core, page, DeleteNote.parse(arguments))
    return (yield from _result(core, page, note, "Deleted"))


def search(core: Core, page: str, query: str | None, tags: Sequence[str] | None) -> Step[NotesResult]:
    """Return the notes that contain a text and have all these tags."""
    query = "" if query is None else query
    if not isinstance(query, str):
        raise InvalidField("query", f"{shown(query)} is not a text")
    checked_tags = check_tags([tags] if isinstance(tags, str) else tags, _MAX_GIVEN_TAGS)
    found = yield from read_memory(core, core.notebooks, page, lambda notebook: notebook.search(query, checked_tags))
    return found_notes(found, {"result_count": len(found), "query": query, "tags": checked_tags})


def list_all(core: Core, page: str, tag: str | None) -> Step[NotesResult]:
    """Return the notes, or those with a tag, newest first."""
    tag = tag or None
    checked_tags = [] if tag is None else check_tags([tag], 1)
    found = yield from read_memory(core, core.notebooks, page, lambda notebook: notebook.search("", checked_tags))
    return found_notes(found, {"note_count": len(found), "tag_filter": tag})


def count_tags(core: Core, page: str) -> Step[TagsResult]:
    """Return the tags in use, each with its number of notes."""
    tags = yield from read_memory(core, core.notebooks, page, Notebook.tags)
    return TagsResult(tags=tags, message=f"{_count(len(tags), 'tag')} in use.", metadata={"tag_count": len(tags)})


def history_of_notes(core: Core, page: str, id: str | None) -> Step[list[AnyEvent]]:
    """Return the events about a note, or about all notes of a session, oldest first. Raises NotFound, PositionLost."""
    if id is not None:
        events = yield from history_of(core, page, check_memory_id("note", id))
        if not any(event.subject == id for event in events):
            raise _not_found(page, id)
        return events
    return (yield from history_of_all(core, page, PREFIX))


def found_notes(notes: list[Note], metadata: dict[str, Any]) -> NotesResult:
    """Return notes as a result; they were validated when they were taken."""
    message = f"{_count(len(notes), 'note')} found." if notes else "No notes found."
    return trusted(NotesResult, {"notes": notes, "message": message, "metadata": metadata})


def _result(core: Core, page: str, note: Remembered | None, participle: str) -> Step[NoteResult]:
    """Return the outcome for a note, with the number of notes now."""
    if not isinstance(note, Note):
        raise NotFound("the note was erased; its history says why")
    total, tags = yield from read_memory(
        core, core.notebooks, page, lambda notebook: (len(notebook), notebook.total_tags)
    )
    message = f"{participle} {note.id}; the session has {_count(total, 'note')} with {_count(tags, 'tag')} now."
    metadata = {"note_id": note.id, "total_notes": total, "total_tags": tags}
    return trusted(NoteResult, {"note": note, "message": message, "metadata": metadata})


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _not_found(page: str, id: str) -> NotFound:
    return NotFound(
        f"there is no {id} in session {page.removeprefix(SESSION_PAGES)!r}; list or search its notes for their ids"
    )


def _check_size(settings: Settings, content: str, tags: Sequence[str]) -> None:
    """Raise TooLarge for more than the settings allow."""
    size, limit = len(content), settings.max_note_content
    if size > limit:
        message = (
            f"note content exceeds maximum length of {limit} characters (got {size}). Please shorten the content or"
            " split into multiple notes"
        )
        raise TooLarge("content", size, limit, message=message)
    count, maximum = len(tags), settings.max_note_tags
    if count > maximum:
        message = (
            f"note has too many tags (max {maximum}, got {count}). Please reduce the number of tags to focus on the"
            " most relevant categories"
        )
        raise TooLarge("tags", count, maximum, message=message)
