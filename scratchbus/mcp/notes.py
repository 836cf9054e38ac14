"""The tools for session notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus import Note, NoteResult
from scratchbus.errors import InvalidField, shown
from scratchbus.mcp.answers import Moment, text_of
from scratchbus.mcp.parameters import Cursor, EventId
from scratchbus.mcp.toolbox import ADDS, READS, REPLACES, ToolGroup, tool
from scratchbus.mcp.workspace import Workspace

Id = Annotated[str, Field(description="The id of a note, such as note_1764000000000.")]
Content = Annotated[
    str, Field(description="One topic, specific enough to act on; a long text is better split into several notes.")
]
Tags = Annotated[list[str] | None, Field(description="A few topics to find it by.")]
Limit = Annotated[int, Field(ge=1, le=100, description="Maximum number of notes to return.")]


class Noted(TypedDict):
    """A note."""

    id: str
    content: str
    tags: list[str]
    created_at: Moment
    updated_at: Moment


class Totals(TypedDict):
    """The id of the note, and the number of notes and tags in the session now."""

    note_id: str
    total_notes: int
    total_tags: int


class NoteAnswer(TypedDict):
    """The result of a change to a note."""

    message: str
    note: NotRequired[Noted]
    metadata: Totals


class Search(TypedDict):
    """The search, and the total number of matching notes."""

    result_count: int
    query: str
    tags: list[str]


class Found(TypedDict):
    """The matching notes, best match first."""

    message: str
    notes: list[Noted]
    metadata: Search
    next_cursor: NotRequired[str]


class TagFilter(TypedDict):
    """The tag filter, and the total number of notes listed."""

    note_count: int
    tag_filter: str | None


class Listed(TypedDict):
    """Notes, newest first."""

    message: str
    notes: list[Noted]
    metadata: TagFilter
    next_cursor: NotRequired[str]


class TagCount(TypedDict):
    """The number of tags."""

    tag_count: int


class Tagged(TypedDict):
    """The tags in use, each with its number of notes."""

    message: str
    tags: dict[str, int]
    metadata: TagCount


class NotesTools(ToolGroup):
    """The tools for the notes of one session."""

    def __init__(self, workspace: Workspace) -> None:
        self._notes = workspace.bus.notes(workspace.session)

    @tool("Add a note", ADDS)
    async def add_note(self, content: Content, tags: Tags = None, event_id: EventId = None) -> NoteAnswer:
        """Save a note for the rest of this session, outside the conversation and its token budget. Search first."""
        result = await self._notes.add(content, tags or (), event_id=event_id)
        return _kept(result)

    @tool("Search the notes", READS)
    async def search_notes(
        self,
        query: Annotated[str, Field(description="Text to find in the content, ignoring case.")] = "",
        tags: Annotated[list[str] | None, Field(description="Only notes that have all of these tags.")] = None,
        limit: Limit = 10,
        cursor: Cursor = None,
    ) -> Found:
        """Search the session's notes. Notes in which the text occurs earlier come first, then newer ones."""
        result = await self._notes.search(query, tags or ())
        notes, following = _part(result.notes, limit, cursor)
        found: Found = {"message": result.message, "notes": notes, "metadata": cast(Search, result.metadata)}
        if following:
            found["next_cursor"] = following
        return found

    @tool("List the notes", READS)
    async def list_notes(
        self,
        tag: Annotated[str | None, Field(description="Only notes with this tag.")] = None,
        limit: Limit = 10,
        cursor: Cursor = None,
    ) -> Listed:
        """List the session's notes, newest first."""
        result = await self._notes.list(tag)
        notes, following = _part(result.notes, limit, cursor)
        listed: Listed = {"message": result.message, "notes": notes, "metadata": cast(TagFilter, result.metadata)}
        if following:
            listed["next_cursor"] = following
        return listed

    @tool("Change a note", REPLACES)
    async def update_note(
        self,
        id: Id,
        content: Annotated[str | None, Field(description="The new content.")] = None,
        tags: Annotated[list[str] | None, Field(description="The new tags, replacing the old ones.")] = None,
        event_id: EventId = None,
    ) -> NoteAnswer:
        """Replace the content or tags of a note, or both. Arguments you leave out change nothing."""
        result = await self._notes.update(id, content, tags, event_id=event_id)
        return _kept(result)

    @tool("Delete a note", REPLACES)
    async def delete_note(self, id: Id, event_id: EventId = None) -> NoteAnswer:
        """Delete a note you no longer need."""
        result = await self._notes.delete(id, event_id=event_id)
        return {"message": result.message, "metadata": cast(Totals, result.metadata)}

    @tool("Add a quick note", ADDS)
    async def scratch_note(self, content: Content, event_id: EventId = None) -> NoteAnswer:
        """Save a quick note without tags for the rest of this session."""
        result = await self._notes.scratch(content, event_id=event_id)
        return _kept(result)

    @tool("List the tags", READS)
    async def list_tags(self) -> Tagged:
        """List the tags in use, each with its number of notes."""
        result = await self._notes.tags()
        return {"message": result.message, "tags": result.tags, "metadata": cast(TagCount, result.metadata)}


def _kept(result: NoteResult) -> NoteAnswer:
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
    """Return the notes after the cursor, which is a note id, and the next cursor, empty on the last page."""
    start = 0
    if cursor is not None:
        start = next((place for place, note in enumerate(notes, 1) if note.id == cursor), 0)
        if not start:
            raise InvalidField(
                "cursor", f"{shown(cursor)} is no longer among these notes; start again without a cursor"
            )
    following = notes[start + limit - 1].id if len(notes) > start + limit else ""
    return [_noted(note) for note in notes[start : start + limit]], following
