"""The notes of a session."""

from __future__ import annotations

from collections.abc import Sequence

from scratchbus.commands import notes
from scratchbus.domain.memories import NoteResult, NotesResult, TagsResult
from scratchbus.domain.values import page_of_session
from scratchbus.memory.page_memory_async import AsyncPageMemory, Events, timetravel


class AsyncNotes(AsyncPageMemory):
    """The notes of a session. Get them from `AsyncBus.notes`.

    Every write takes `event_id`, an id the caller chooses to make a retry safe: the retry returns the note as the first
    attempt left it, with current totals. A write raises InvalidField, TooLarge or InvalidId for bad arguments, NotFound
    if the note does not exist, and SessionOver once the session has ended; then nothing has changed. Every read sees
    all writes acknowledged before it began.
    """

    _page_of = staticmethod(page_of_session)

    async def add(self, content: str, tags: Sequence[str] = (), *, event_id: str | None = None) -> NoteResult:
        """Add a note of up to `max_note_content` characters, with up to `max_note_tags` tags."""
        return await self._do(notes.add, locals())

    async def scratch(self, content: str, *, event_id: str | None = None) -> NoteResult:
        """Add a note without tags."""
        return await self.add(content, event_id=event_id)

    async def search(self, query: str | None = "", tags: Sequence[str] | None = ()) -> NotesResult:
        """Return the notes that contain a text, ignoring case, and have all these tags.

        Notes with the text nearer to their start come first, then newer ones. Without text or tags, all match.
        """
        return await self._do(notes.search, query, tags)

    async def list(self, tag: str | None = None) -> NotesResult:
        """Return all notes, or those with a tag, newest first."""
        return await self._do(notes.list_all, tag)

    async def update(
        self,
        id: str,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        revision: int | None = None,
        event_id: str | None = None,
    ) -> NoteResult:
        """Replace the content of a note, its tags, or both; None leaves a field unchanged.

        With a `revision`, the note's `version` when it was read, it is changed only if it still has that version.
        Raises RevisionConflict.
        """
        return await self._do(notes.update, locals())

    async def delete(self, id: str, *, revision: int | None = None, event_id: str | None = None) -> NoteResult:
        """Delete a note and return it; its history stays. `revision` works as in `update`."""
        return await self._do(notes.delete, locals())

    async def tags(self) -> TagsResult:
        """Return the tags in use, each with its number of notes."""
        return await self._do(notes.count_tags)

    async def history(self, id: str | None = None) -> Events:
        """Return the events of a note, or of all notes, oldest first; also of deleted ones.

        Raises NotFound for a note that never existed, and PositionLost if some of its events have left the log.
        """
        return await self._do(notes.history_of_notes, id)

    async def as_of(self, when: timetravel.When, query: str = "", tags: Sequence[str] = ()) -> NotesResult:
        """Return the notes at a position or a time: all, newest first, or those that match, like `search`.

        Raises InvalidPosition.
        """
        return await self._do(timetravel.notes_as_of, when, query, tags)
