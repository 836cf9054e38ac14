"""The notepad of a session."""

# Generated from notepad_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from scratchbus.commands import notepad
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.memories import Revised
from scratchbus.domain.values import page_of_session
from scratchbus.memory.page_memory import PageMemory, timetravel
from scratchbus.projections.notepad import SUBJECT
from scratchbus.readmodel.memory_history import history_of


class Notepad(PageMemory):
    """One text that a session keeps outside its conversation. Get it from `Bus.notepad`.

    Every edit is an event that applies to the current text, so concurrent edits are all kept. Every write takes
    `event_id`, an id the caller chooses to make a retry safe. A write raises InvalidField for an edit that does not
    apply, TooLarge above `max_notepad` characters, and SessionOver once the session has ended; then nothing has
    changed.
    """

    _page_of = staticmethod(page_of_session)

    def read(self) -> str:
        """Return its text; "" if it was never written."""
        return (self.read_with_revision()).content

    def read_with_revision(self) -> Revised:
        """Return its text, and the revision to pass to `write`."""
        return self._do(notepad.read)

    def write(self, content: str, *, revision: int | None = None, event_id: str | None = None) -> int:
        """Replace the whole text; "" clears it. Returns the new revision.

        With a `revision`, the text is replaced only if it is still at that revision (0: still empty). Raises
        RevisionConflict.
        """
        return notepad.revision_of(self._edit(notepad.WriteNotepad, locals()))

    def append(self, text: str, *, line: bool = False, event_id: str | None = None) -> int:
        """Append a text exactly as given, or with `line` as a line of its own. Returns the new revision."""
        if line:
            return notepad.revision_of(self._edit(notepad.AppendLine, locals()))
        return self.update("append", text, event_id=event_id)

    def update(
        self,
        operation: str,
        content: str | None = None,
        find: str | None = None,
        replace: str | None = None,
        replace_all: bool = False,
        *,
        event_id: str | None = None,
    ) -> int:
        """Edit a part of the text: `append` or `prepend` content, `delete` it, or `find_replace`.

        The text to find or delete must occur exactly once; with `replace_all`, all occurrences are edited, at least
        one. Returns the new revision.
        """
        return notepad.revision_of(self._edit(notepad.UpdateNotepad, locals()))

    def history(self) -> list[AnyEvent]:
        """Return all edits as events, oldest first, also after the session has ended. Raises PositionLost."""
        return self._do(history_of, SUBJECT)

    def as_of(self, when: timetravel.When) -> str:
        """Return the text as it was at a position or a time. Raises InvalidPosition."""
        return notepad.content_of(self._do(timetravel.remembered_as_of, SUBJECT, when))
