"""The notes of a session."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field
from starlette.responses import Response

from scratchbus import Note, NoteResult, NotesResult, document_of
from scratchbus.http.bodies import Body, JsonBody, NotBlank, optional
from scratchbus.http.documents import answer, listing, location
from scratchbus.http.memories import Based, NoteId, events_answer, memory_example, memory_fields
from scratchbus.http.moments import When
from scratchbus.http.parameters import Absent, Label, Once, SessionName
from scratchbus.http.problems import Refusal
from scratchbus.http.responses import EVENTS
from scratchbus.http.schemas import REVISION, STRING, document, exact, listed, location_of, with_headers
from scratchbus.http.server import MemoryBus
from scratchbus.settings import Settings

router = APIRouter(tags=["notes"])
PATH: Final = "/sessions/{session}/notes"
ONE: Final = PATH + "/{note:note}"

_DEFAULTS: Final = Settings.model_fields  # the settings of the bus decide
_SIZE: Final = {"maxLength": _DEFAULTS["max_note_content"].default}
_TAGS: Final = {"maxItems": _DEFAULTS["max_note_tags"].default}


class NewNote(Body, example={"content": "The bank answers on Mondays only.", "tags": ["bank"]}):
    """A note to take."""

    content: NotBlank = Field(json_schema_extra=_SIZE)
    tags: list[Label] = Field(default=[], json_schema_extra=_TAGS)


class NoteChange(Body, example={"tags": ["bank", "hours"]}):
    """What to replace: the content, the tags, or both."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    content: NotBlank = optional(json_schema_extra=_SIZE)
    tags: list[Label] = optional()


_EXAMPLE: Final = memory_example("note_1795386035607", content="The bank answers on Mondays only.", tags=["bank"])
_FIELDS: Final = memory_fields("content", tags=listed(STRING))
_NOTE: Final = document("The note; its version is the ETag", exact(**_FIELDS), _EXAMPLE, REVISION)
_ADDED: Final = with_headers(_NOTE, location_of("/api/v1/sessions/s1/notes/note_1795386035607"))
_METADATA: Final = {"type": "object", "additionalProperties": True}
_NOTES: Final = document(
    "The notes, a summary, and the numbers of matches",
    exact(items=listed(exact(**_FIELDS)), message=STRING, metadata=_METADATA),
    {"items": [_EXAMPLE], "message": "1 note found.", "metadata": {"note_count": 1, "tag_filter": None}},
)
_COUNTS: Final = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}
_IN_USE: Final = document("The tags, each with its notes", exact(tags=_COUNTS), {"tags": {"bank": 3}})

Tag = Annotated[Label | Absent, Query(description="This tag, in any case.", examples=["bank"])]
Tags = Annotated[list[Label], Query(alias="tag", description="All of these, in any case.", examples=[["bank"]])]


@router.get(PATH, responses={200: _NOTES})
async def list_notes(bus: MemoryBus, session: SessionName, tag: Tag = None, at: When = None) -> Response:
    """Return all notes, or those with a tag, newest first."""
    notes = bus.notes(session)
    if at is not None:
        return _listing(await notes.as_of(at, tags=[] if tag is None else [tag]))
    return _listing(await notes.list(tag))


@router.post(PATH, status_code=201, responses={201: _ADDED})
async def add_note(bus: MemoryBus, session: SessionName, guards: Once, body: JsonBody[NewNote]) -> Response:
    """Take a note; without tags it is a scratch note."""
    added = await bus.notes(session).add(body.content, body.tags, event_id=guards.event_id)
    return _one(added.note, 201, location("sessions", session, "notes", added.note.id))


@router.get(PATH + "/search", responses={200: _NOTES})
async def search_notes(
    bus: MemoryBus,
    session: SessionName,
    query: Annotated[str, Query(description="A text in the content, in any case.", examples=["monday"])] = "",
    tag: Tags = [],  # noqa: B006 - FastAPI copies it
    at: When = None,
) -> Response:
    """Return the notes that contain a text and have all these tags; where it comes earlier is first."""
    notes = bus.notes(session)
    return _listing(await (notes.search(query, tag) if at is None else notes.as_of(at, query, tag)))


@router.get(PATH + "/tags", responses={200: _IN_USE})
async def list_tags(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return the tags in use, each with the number of its notes."""
    notes = bus.notes(session)
    if at is None:
        return answer({"tags": (await notes.tags()).tags})
    counts = Counter(tag for note in (await notes.as_of(at)).notes for tag in note.tags)
    return answer({"tags": {tag: counts[tag] for tag in sorted(counts, key=lambda tag: (tag.casefold(), tag))}})


@router.get(PATH + "/history", responses={200: EVENTS})
async def get_notes_history(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return the events of all notes, oldest first, also of deleted ones."""
    return await events_answer(bus, f"session:{session}", await bus.notes(session).history(), at)


@router.get(ONE, responses={200: _NOTE})
async def get_note(bus: MemoryBus, session: SessionName, note: NoteId, at: When = None) -> Response:
    """Return a note."""
    notes = bus.notes(session)
    found = await (notes.list() if at is None else notes.as_of(at))
    for each in found.notes:
        if each.id == note:
            return _one(each)
    raise Refusal(404, "not-found", f"there is no {note} in session {session!r}; its history may still be there")


@router.patch(ONE, responses={200: _NOTE})
async def update_note(
    bus: MemoryBus, session: SessionName, note: NoteId, guards: Based, body: JsonBody[NoteChange]
) -> Response:
    """Replace the content of a note, its tags, or both."""
    changed = await bus.notes(session).update(note, **guards.of_revision(), **body.given)
    return _one(changed.note)


@router.delete(ONE, responses={200: _NOTE})
async def delete_note(bus: MemoryBus, session: SessionName, note: NoteId, guards: Based) -> Response:
    """Delete a note and return it; its history stays."""
    deleted: NoteResult = await bus.notes(session).delete(note, **guards.of_revision())
    return answer(document_of(deleted.note))


@router.get(ONE + "/history", responses={200: EVENTS})
async def get_note_history(bus: MemoryBus, session: SessionName, note: NoteId, at: When = None) -> Response:
    """Return the events of a note, oldest first, also after it was deleted."""
    return await events_answer(bus, f"session:{session}", await bus.notes(session).history(note), at)


def _one(note: Note, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return answer(document_of(note), status, headers, version=note.version)


def _listing(found: NotesResult) -> Response:
    return answer({**listing(found.notes), "message": found.message, "metadata": found.metadata})
