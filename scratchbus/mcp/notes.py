"""The tools for the notes of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus import Note, NoteResult
from scratchbus.errors import InvalidField, shown
from scratchbus.mcp.answers import Moment, text_of
from scratchbus.mcp.desk import Desk
from scratchbus.mcp.toolbox import ADDS, READS, REPLACES, Row

Id = Annotated[str, Field(description="The id of a note: note_ and a number.")]
Content = Annotated[str, Field(description="One matter, worded so that you can act on it; 4,000 characters at most.")]
Tags = Annotated[list[str] | None, Field(description="What it is about: 10 tags at most.")]
EventId = Annotated[str | None, Field(description="An id of your own: a retry with it changes nothing more.")]
Limit = Annotated[int, Field(ge=1, le=100, description="How many notes at most.")]
Cursor = Annotated[str | None, Field(description="The `next_cursor` of the answer before.")]


class Noted(TypedDict):
    """A note."""

    id: str
    content: str
    tags: list[str]
    created_at: Moment
    updated_at: Moment


class Totals(TypedDict):
    """The note that this was about, and how many notes and tags there are now."""

    note_id: str
    total_notes: int
    total_tags: int


class Kept(TypedDict):
    """What became of a note."""

    message: str
    note: NotRequired[Noted]
    metadata: Totals


class Search(TypedDict):
    """What was searched for, and how many notes there are in all."""

    result_count: int
    query: str
    tags: list[str]


class Found(TypedDict):
    """Notes that were found, the best first."""

    message: str
    notes: list[Noted]
    metadata: Search
    next_cursor: NotRequired[str]


class Filter(TypedDict):
    """Which tag was asked for, and how many notes there are in all."""

    note_count: int
    tag_filter: str | None


class Listed(TypedDict):
    """Notes, the newest first."""

    message: str
    notes: list[Noted]
    metadata: Filter
    next_cursor: NotRequired[str]


class TagCount(TypedDict):
    """How many tags there are."""

    tag_count: int


class Tagged(TypedDict):
    """The tags in use, and how many notes have each."""

    message: str
    tags: dict[str, int]
    metadata: TagCount


class Notes:
    """The tools for the notes of one session."""

    TOOLS: ClassVar[tuple[Row, ...]] = (
        Row("add_note", "Add a note", ADDS),
        Row("search_notes", "Search the notes", READS),
        Row("list_notes", "List the notes", READS),
        Row("update_note", "Change a note", REPLACES),
        Row("delete_note", "Delete a note", REPLACES),
        Row("scratch_note", "Jot something down", ADDS),
        Row("list_tags", "List the tags", READS),
    )

    def __init__(self, desk: Desk) -> None:
        self._notes = desk.bus.notes(desk.session)

    async def add_note(self, content: Content, tags: Tags = None, event_id: EventId = None) -> Kept:
        """Note something for the rest of the session, outside the conversation and its token budget."""
        result = await self._notes.add(content, tags or (), event_id=event_id)
        return _kept(result)

    async def search_notes(
        self,
        query: Annotated[str, Field(description="A part of the content, in any case.")] = "",
        tags: Annotated[list[str] | None, Field(description="The note has all of these.")] = None,
        limit: Limit = 10,
        cursor: Cursor = None,
    ) -> Found:
        """Search the notes of the session: by where in the note it was found, then the newest first."""
        result = await self._notes.search(query, tags or ())
        notes, following = _part(result.notes, limit, cursor)
        found: Found = {"message": result.message, "notes": notes, "metadata": cast(Search, result.metadata)}
        if following:
            found["next_cursor"] = following
        return found

    async def list_notes(
        self,
        tag: Annotated[str | None, Field(description="Only notes with this tag.")] = None,
        limit: Limit = 10,
        cursor: Cursor = None,
    ) -> Listed:
        """List the notes of the session, the newest first."""
        result = await self._notes.list(tag)
        notes, following = _part(result.notes, limit, cursor)
        listed: Listed = {"message": result.message, "notes": notes, "metadata": cast(Filter, result.metadata)}
        if following:
            listed["next_cursor"] = following
        return listed

    async def update_note(
        self,
        id: Id,
        content: Annotated[str | None, Field(description="What it should say.")] = None,
        tags: Annotated[list[str] | None, Field(description="The tags it should have.")] = None,
        event_id: EventId = None,
    ) -> Kept:
        """Replace the content of a note, or its tags, or both; what is left out stays as it is."""
        result = await self._notes.update(id, content, tags, event_id=event_id)
        return _kept(result)

    async def delete_note(self, id: Id, event_id: EventId = None) -> Kept:
        """Delete a note."""
        result = await self._notes.delete(id, event_id=event_id)
        return {"message": result.message, "metadata": cast(Totals, result.metadata)}

    async def scratch_note(self, content: Content, event_id: EventId = None) -> Kept:
        """Jot something down for the rest of the session, without tags."""
        result = await self._notes.scratch(content, event_id=event_id)
        return _kept(result)

    async def list_tags(self) -> Tagged:
        """List the tags in use, with how many notes have each."""
        result = await self._notes.tags()
        return {"message": result.message, "tags": result.tags, "metadata": cast(TagCount, result.metadata)}


def _kept(result: NoteResult) -> Kept:
    return {"message": result.message, "note": _noted(result.note), "metadata": cast(Totals, result.metadata)}


def _noted(note: Note) -> Noted:
    return {
        "id": note.id,
        "content": note.content,
        "tags": list(note.tags),
        "created_at": text_of(note.created_at),
        "updated_at": text_of(note.updated_at),
    }


def _part(notes: Sequence[Note], limit: int, cursor: str | None) -> tuple[list[Noted], str]:
    """Return those behind the cursor, which is the id of a note, and the cursor of what follows, if anything does."""
    start = 0
    if cursor is not None:
        start = next((place for place, note in enumerate(notes, 1) if note.id == cursor), 0)
        if not start:
            raise InvalidField("cursor", f"{shown(cursor)} is no longer among these notes; begin again without it")
    following = notes[start + limit - 1].id if len(notes) > start + limit else ""
    return [_noted(note) for note in notes[start : start + limit]], following
