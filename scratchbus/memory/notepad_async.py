"""The notepad of a session."""

from __future__ import annotations

from scratchbus.commands import notepad
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.memories import Revised
from scratchbus.domain.values import page_of_session
from scratchbus.memory.page_memory_async import AsyncPageMemory, timetravel
from scratchbus.projections.notepad import SUBJECT
from scratchbus.readmodel.memory_history import history_of


class AsyncNotepad(AsyncPageMemory):
    """One text that a session keeps outside its conversation. Get it from `AsyncBus.notepad`.

    Every edit is an event that applies to the current text, so concurrent edits are all kept. Every write takes
    `event_id`, an id the caller chooses to make a retry safe. A write raises InvalidField for an edit that does not
    apply, TooLarge above `max_notepad` characters, and SessionOver once the session has ended; then nothing has
    changed.
    """

    _page_of = staticmethod(page_of_session)

    async def read(self) -> str:
        """Return its text; "" if it was never written."""
        return (await self.read_with_revision()).content

    async def read_with_revision(self) -> Revised:
        """Return its text, and the revision to pass to `write`."""
        return await self._do(notepad.read)

    async def write(self, content: str, *, revision: int | None = None, event_id: str | None = None) -> int:
        """Replace the whole text; "" clears it. Returns the new revision.

        With a `revision`, the text is replaced only if it is still at that revision (0: still empty). Raises
        RevisionConflict.
        """
        return notepad.revision_of(await self._edit(notepad.WriteNotepad, locals()))

    async def append(self, text: str, *, line: bool = False, event_id: str | None = None) -> int:
        """Append a text exactly as given, or with `line` as a line of its own. Returns the new revision."""
        if line:
            return notepad.revision_of(await self._edit(notepad.AppendLine, locals()))
        return await self.update("append", text, event_id=event_id)

    async def update(
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
        return notepad.revision_of(await self._edit(notepad.UpdateNotepad, locals()))

    async def history(self) -> list[AnyEvent]:
        """Return all edits as events, oldest first, also after the session has ended. Raises PositionLost."""
        return await self._do(history_of, SUBJECT)

    async def as_of(self, when: timetravel.When) -> str:
        """Return the text as it was at a position or a time. Raises InvalidPosition."""
        return notepad.content_of(await self._do(timetravel.remembered_as_of, SUBJECT, when))
