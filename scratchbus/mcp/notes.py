"""The tools for session notes."""

from __future__ import annotations

from typing import Annotated, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

import scratchbus
from scratchbus.mcp.answers import Moment, answer_of
from scratchbus.mcp.paging import after_id, search
from scratchbus.mcp.tool_parameters import Cursor, EventId, Limit, Tags
from scratchbus.mcp.toolbox import ADDS, READS, REPLACES, ToolGroup, tool

Id = Annotated[str, Field(description="Id of a note, such as note_1764000000000.")]
Content = Annotated[str, Field(description="One topic, up to 4,000 characters.")]


class Noted(TypedDict):
    """A note."""

    id: str
    content: str
    tags: list[str]
    created_at: Moment
    updated_at: Moment


class Totals(TypedDict):
    """The id of the note, and how many notes and tags the session now has."""

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


class FoundNotes(TypedDict):
    """The matching notes, best match first."""

    message: str
    notes: list[Noted]
    metadata: Search
    next_cursor: NotRequired[str]


class NoteListing(TypedDict):
    """The number of notes, and the tag that all of them have."""

    note_count: int
    tag_filter: str | None


class ListedNotes(TypedDict):
    """The notes, newest first."""

    message: str
    notes: list[Noted]
    metadata: NoteListing
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

    @property
    def _notes(self) -> scratchbus.AsyncNotes:
        return self._workspace.bus.notes(self._workspace.session)

    @tool("Add a note", ADDS)
    async def add_note(self, content: Content, tags: Tags = None, event_id: EventId = None) -> NoteAnswer:
        """Save a note for this session."""
        result = await self._notes.add(content, tags or (), event_id=event_id)
        return _note_answer(result)

    @tool("Search the notes", READS)
    async def search_notes(
        self,
        query: Annotated[str, Field(description="Words to find; without: all, newest first.")] = "",
        tags: list[str] | None = None,
        limit: Limit = 10,
        cursor: Cursor = None,
    ) -> FoundNotes:
        """Find or list the session's notes."""
        matching = search(query, (await self._notes.search("", tags or ())).notes)
        notes, following = _page_of_notes(matching, limit, cursor)
        count = len(matching)
        message = f"Found {count} {'note' if count == 1 else 'notes'}."
        searched: Search = {"result_count": count, "query": query, "tags": list(tags or ())}
        found: FoundNotes = {"message": message, "notes": notes, "metadata": searched}
        if following:
            found["next_cursor"] = following
        return found

    @tool("Change a note", REPLACES)
    async def update_note(
        self,
        id: Id,
        content: Annotated[str | None, Field(description="The new content.")] = None,
        tags: Annotated[list[str] | None, Field(description="Replace the old ones.")] = None,
        event_id: EventId = None,
    ) -> NoteAnswer:
        """Replace the content of a note, its tags, or both."""
        result = await self._notes.update(id, content, tags, event_id=event_id)
        return _note_answer(result)

    @tool("Delete a note", REPLACES)
    async def delete_note(self, id: Id, event_id: EventId = None) -> NoteAnswer:
        """Delete a note you no longer need."""
        result = await self._notes.delete(id, event_id=event_id)
        return {"message": result.message, "metadata": cast(Totals, result.metadata)}

    @tool("List the tags", READS)
    async def list_tags(self) -> Tagged:
        """List the tags in use, each with its number of notes."""
        result = await self._notes.tags()
        return {"message": result.message, "tags": result.tags, "metadata": cast(TagCount, result.metadata)}

    @tool("Add a note", ADDS, current_name="add_note")
    async def scratch_note(self, content: Content, tags: Tags = None, event_id: EventId = None) -> NoteAnswer:
        """Save a note for this session."""
        return await self.add_note(content, tags, event_id)

    @tool("List the notes", READS, current_name="search_notes")
    async def list_notes(
        self, tag: str | None = None, limit: Annotated[int | None, Field(ge=1)] = None, cursor: Cursor = None
    ) -> ListedNotes:
        """List the session's notes, all of them by default."""
        result = await self._notes.list(tag)
        notes, following = _page_of_notes(result.notes, limit or len(result.notes), cursor)
        listed: ListedNotes = {
            "message": result.message,
            "notes": notes,
            "metadata": cast(NoteListing, result.metadata),
        }
        if following:
            listed["next_cursor"] = following
        return listed


def _note_answer(result: scratchbus.NoteResult) -> NoteAnswer:
    return {"message": result.message, "note": answer_of(Noted, result.note), "metadata": cast(Totals, result.metadata)}


def _page_of_notes(notes: list[scratchbus.Note], limit: int, cursor: str | None) -> tuple[list[Noted], str]:
    """Return the notes after the cursor, which is a note id, and the next cursor, empty on the last page."""
    found = after_id(cursor, notes)
    following = found[limit - 1].id if len(found) > limit else ""
    return [answer_of(Noted, note) for note in found[:limit]], following
