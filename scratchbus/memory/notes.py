"""The notes of a session."""

# Generated from notes_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scratchbus.commands import notes
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.memories import NoteResult, NotesResult, TagsResult
from scratchbus.domain.values import page_of_session
from scratchbus.readmodel.scope import Host
from scratchbus.telemetry.lazy import lazy

if TYPE_CHECKING:
    from scratchbus import timetravel
else:
    timetravel = lazy("scratchbus.timetravel")

Events = list[AnyEvent]  # inside a class with a method `list`, that name is taken


class Notes:
    """The notes of a session. Get them from `Bus.notes`.

    Every write takes `event_id`, an id the caller chooses to make a retry safe: the retry returns the note as the first
    attempt left it, with current totals. A write raises InvalidField, TooLarge or InvalidId for bad arguments, NotFound
    if the note does not exist, and SessionOver once the session has ended; then nothing has changed. Every read sees
    all writes acknowledged before it began.
    """

    def __init__(self, bus: Host, session: str) -> None:
        self._bus = bus
        self._page = page_of_session(session)

    def add(self, content: str, tags: Sequence[str] = (), *, event_id: str | None = None) -> NoteResult:
        """Add a note of up to `max_note_content` characters, with up to `max_note_tags` tags."""
        return self._bus.converse(notes.add(self._bus.core, self._page, locals()))

    def scratch(self, content: str, *, event_id: str | None = None) -> NoteResult:
        """Add a note without tags."""
        return self.add(content, event_id=event_id)

    def search(self, query: str | None = "", tags: Sequence[str] | None = ()) -> NotesResult:
        """Return the notes that contain a text, ignoring case, and have all these tags.

        Notes with the text nearer to their start come first, then newer ones. Without text or tags, all match.
        """
        return self._bus.converse(notes.search(self._bus.core, self._page, query, tags))

    def list(self, tag: str | None = None) -> NotesResult:
        """Return all notes, or those with a tag, newest first."""
        return self._bus.converse(notes.list_all(self._bus.core, self._page, tag))

    def update(
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
        return self._bus.converse(notes.update(self._bus.core, self._page, locals()))

    def delete(self, id: str, *, revision: int | None = None, event_id: str | None = None) -> NoteResult:
        """Delete a note and return it; its history stays. `revision` works as in `update`."""
        return self._bus.converse(notes.delete(self._bus.core, self._page, locals()))

    def tags(self) -> TagsResult:
        """Return the tags in use, each with its number of notes."""
        return self._bus.converse(notes.count_tags(self._bus.core, self._page))

    def history(self, id: str | None = None) -> Events:
        """Return the events of a note, or of all notes, oldest first; also of deleted ones.

        Raises NotFound for a note that never existed, and PositionLost if some of its events have left the log.
        """
        return self._bus.converse(notes.history_of_notes(self._bus.core, self._page, id))

    def as_of(self, when: timetravel.When, query: str = "", tags: Sequence[str] = ()) -> NotesResult:
        """Return the notes at a position or a time: all, newest first, or those that match, like `search`.

        Raises InvalidPosition.
        """
        return self._bus.converse(timetravel.notes_as_of(self._bus.core, self._page, when, query, tags))
