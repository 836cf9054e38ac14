"""Taking, finding and changing the notes of a session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from scratchbus.commands.memory import Edit, edit, folded, history_of
from scratchbus.domain.checks import bytes_of, check_tags
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Note, NoteResult, NotesResult, Remembered, TagsResult
from scratchbus.domain.memory_events import NoteAdded, NoteDeleted, NoteUpdated
from scratchbus.domain.trusted import trusted
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, InvalidId, NotFound, TooLarge, shown
from scratchbus.eventlog.append import append
from scratchbus.eventlog.because import reasons
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.reader import Narrow, decode_wanted, read
from scratchbus.projections.notes import PREFIX, evolve
from scratchbus.projections.session import PAGES
from scratchbus.projections.table import is_over
from scratchbus.readmodel.history import history, known_events
from scratchbus.readmodel.scope import Core

_ID = re.compile(PREFIX + r"\d{1,16}")
_DELETED = "deleted"
_MOST_GIVEN = 1_000  # tags that are looked at


def add(core: Core, page: str, content: str, tags: Sequence[str], event_id: str | None) -> Step[NoteResult]:
    """Take a note; the append script gives it its id."""
    content, tags = _content(core, content), _tags(core, tags)
    asked = Edit.of(page, PREFIX, event_id, "add_note", content, tags)
    event: Event = NoteAdded(by=core.acting(), **reasons(), content=content, tags=tags)
    done = yield from append(core.log, page, [asked.write(event, 0)])
    if done.recalled is not None:
        (event,) = yield from known_events(core.log, done.recalled)
    else:
        event = done.written[0].placed(event)
    return (yield from _result(core, page, evolve(None, event), "Added"))


def update(
    core: Core, page: str, id: str, content: str | None, tags: Sequence[str] | None, event_id: str | None
) -> Step[NoteResult]:
    """Replace the content of a note, its tags, or both."""
    id = _check_id(id)
    if content is None and tags is None:
        raise InvalidField("content", "nothing to change; give content, tags, or both")
    content = None if content is None else _content(core, content)
    tags = None if tags is None else _tags(core, tags)

    def make(note: Remembered | None) -> Event:
        _there(page, id, note)
        return NoteUpdated(by=core.acting(), **reasons(), content=content, tags=tags)

    note = yield from edit(core, Edit.of(page, id, event_id, "update_note", content, tags), make)
    return (yield from _result(core, page, note, "Updated"))


def delete(core: Core, page: str, id: str, event_id: str | None) -> Step[NoteResult]:
    """Throw a note away; return it as it was."""
    id = _check_id(id)

    def make(note: Remembered | None) -> Event:
        _there(page, id, note)
        return NoteDeleted(by=core.acting(), **reasons())

    yield from edit(core, Edit.of(page, id, event_id, "delete_note"), make, status=_DELETED)
    *before, _ = yield from history(core.log, page, id)
    return (yield from _result(core, page, folded(before, id), "Deleted"))


def search(core: Core, page: str, query: str | None, tags: Sequence[str] | None) -> Step[NotesResult]:
    """Return the notes that have a text in them and all these tags."""
    query = "" if query is None else query
    if not isinstance(query, str):
        raise InvalidField("query", f"{shown(query)} is not a text")
    wanted = check_tags([tags] if isinstance(tags, str) else tags, _MOST_GIVEN)
    held = yield from core.notebooks.fresh(core.log, page)
    with held.lock:
        found = held.notes.search(query, wanted)
    return found_notes(found, {"result_count": len(found), "query": query, "tags": wanted})


def list_all(core: Core, page: str, tag: str | None) -> Step[NotesResult]:
    """Return the notes, or those with a tag, newest first."""
    tag = tag or None
    wanted = [] if tag is None else check_tags([tag], 1)
    held = yield from core.notebooks.fresh(core.log, page)
    with held.lock:
        found = held.notes.search("", wanted)
    return found_notes(found, {"note_count": len(found), "tag_filter": tag})


def count_tags(core: Core, page: str) -> Step[TagsResult]:
    """Return the tags in use, each with how many notes have it."""
    held = yield from core.notebooks.fresh(core.log, page)
    with held.lock:
        tags = held.notes.tags()
    return TagsResult(tags=tags, message=f"{_count(len(tags), 'tag')} in use.", metadata={"tag_count": len(tags)})


def history_of_notes(core: Core, page: str, id: str | None) -> Step[list[Event]]:
    """Return the events about a note, or about all of a session, oldest first. Raises NotFound, PositionLost."""
    if id is not None:
        events = yield from history_of(core, page, _check_id(id))
        if not any(event.subject == id for event in events):
            raise _not_found(page, id)
        return events
    events, places = [], (yield from cursors(core.log, None, [page]))
    while chunks := (yield from read(core.log, places)):
        events += decode_wanted(chunks, Narrow.of([page], None, None))
    return [event for event in events if event.subject.startswith(PREFIX) or is_over(event)]


def found_notes(notes: list[Note], metadata: dict[str, Any]) -> NotesResult:
    """Return notes as a result; they were checked when they were taken."""
    message = f"{_count(len(notes), 'note')} found." if notes else "No notes found."
    return trusted(NotesResult, {"notes": notes, "message": message, "metadata": metadata})


def _result(core: Core, page: str, note: Remembered | None, done: str) -> Step[NoteResult]:
    """Return what became of a note, with how many there are now."""
    if not isinstance(note, Note):
        raise NotFound("the note was erased; its history says why")
    held = yield from core.notebooks.fresh(core.log, page)
    with held.lock:
        total, tags = len(held.notes), held.notes.total_tags
    message = f"{done} {note.id}; the session has {_count(total, 'note')} with {_count(tags, 'tag')} now."
    metadata = {"note_id": note.id, "total_notes": total, "total_tags": tags}
    return trusted(NoteResult, {"note": note, "message": message, "metadata": metadata})


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _check_id(id: object) -> str:
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise InvalidId(
            f"id: {shown(id)} is not the id of a note; note ids look like note_1795256156929, as `list` shows"
        )
    return id


def _there(page: str, id: str, note: Remembered | None) -> None:
    if note is None:
        raise _not_found(page, id)


def _not_found(page: str, id: str) -> NotFound:
    return NotFound(f"there is no {id} in session {page.removeprefix(PAGES)!r}; list or search its notes for their ids")


def _content(core: Core, content: object) -> str:
    if not isinstance(content, str):
        raise InvalidField("content", f"{shown(content)} is not a text")
    if not content or content.isspace():
        raise InvalidField("content", "is empty; say what is worth noting, or delete the note")
    bytes_of("content", content)
    if len(content) > core.max_note_content:
        advice = "shorten it, or split it into several notes"
        raise TooLarge("content", len(content), core.max_note_content, "characters", advice)
    return content


def _tags(core: Core, tags: object) -> list[str]:
    given = check_tags(tags, _MOST_GIVEN)
    if len(given) > core.max_note_tags:
        advice = "keep those by which the note is to be found"
        raise TooLarge("tags", len(given), core.max_note_tags, "tags", advice)
    return given
