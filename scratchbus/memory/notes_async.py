"""The notes of a session."""

from __future__ import annotations

from collections.abc import Sequence

from scratchbus.commands import notes
from scratchbus.domain.events import Event
from scratchbus.domain.memories import NoteResult, NotesResult, TagsResult
from scratchbus.domain.values import page_of_session
from scratchbus.readmodel.scope import AsyncHost
from scratchbus.timetravel import When, notes_as_of

Events = list[Event]  # inside a class with a method `list`, that name is taken


class AsyncNotes:
    """The notes of a session. Get them from `AsyncBus.notes`.

    Every write takes `event_id`, a caller's own id that makes a retry safe: the note comes back as it was then, with
    the totals of now. A write raises InvalidField, TooLarge or InvalidId for what is not acceptable, NotFound for a
    note that is not there, and SessionOver once the session has ended; then nothing was changed. Every read sees what
    was acknowledged before it began.
    """

    def __init__(self, bus: AsyncHost, session: str) -> None:
        self._bus = bus
        self._page = page_of_session(session)

    async def add(self, content: str, tags: Sequence[str] = (), *, event_id: str | None = None) -> NoteResult:
        """Take a note of up to `max_note_content` characters, with up to `max_note_tags` tags."""
        return await self._bus.converse(notes.add(self._bus.core, self._page, content, tags, event_id))

    async def scratch(self, content: str, *, event_id: str | None = None) -> NoteResult:
        """Take a note without tags."""
        return await self.add(content, event_id=event_id)

    async def search(self, query: str | None = "", tags: Sequence[str] | None = ()) -> NotesResult:
        """Return the notes that have a text in them and all these tags, in any case.

        Where the text comes earlier is first, then the newest. Both may be left out.
        """
        return await self._bus.converse(notes.search(self._bus.core, self._page, query, tags))

    async def list(self, tag: str | None = None) -> NotesResult:
        """Return all notes, or those with a tag, newest first."""
        return await self._bus.converse(notes.list_all(self._bus.core, self._page, tag))

    async def update(
        self,
        id: str,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        event_id: str | None = None,
    ) -> NoteResult:
        """Replace what is given of a note: its content, its tags, or both."""
        return await self._bus.converse(notes.update(self._bus.core, self._page, id, content, tags, event_id))

    async def delete(self, id: str, *, event_id: str | None = None) -> NoteResult:
        """Throw a note away, and return it as it was; its history stays."""
        return await self._bus.converse(notes.delete(self._bus.core, self._page, id, event_id))

    async def tags(self) -> TagsResult:
        """Return the tags in use, each with how many notes have it."""
        return await self._bus.converse(notes.count_tags(self._bus.core, self._page))

    async def history(self, id: str | None = None) -> Events:
        """Return the events about a note, or about all notes, oldest first; also of those that are no longer there.

        Raises NotFound for a note that never was, and PositionLost when some are no longer in the log.
        """
        return await self._bus.converse(notes.history_of_notes(self._bus.core, self._page, id))

    async def as_of(self, when: When) -> NotesResult:
        """Return all notes as they were at a position or a time, newest first. Raises InvalidPosition."""
        return await self._bus.converse(notes_as_of(self._bus.core, self._page, when))
