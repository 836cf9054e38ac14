"""The notepad of a session."""

from __future__ import annotations

from scratchbus.commands import notepad
from scratchbus.commands.memory import history_of
from scratchbus.domain.events import Event
from scratchbus.domain.memories import Revised
from scratchbus.domain.values import page_of_session
from scratchbus.projections.notepad import SUBJECT
from scratchbus.readmodel.scope import AsyncHost
from scratchbus.timetravel import When, remembered_as_of


class AsyncNotepad:
    """One text that a session keeps for itself, outside of its conversation. Get it from `AsyncBus.notepad`.

    Every edit is an event upon what is there: of two writers at once, both edits are in it. Every write takes
    `event_id`, a caller's own id that makes a retry safe. It raises InvalidField for what cannot be done, TooLarge for
    more than `max_notepad` characters, and SessionOver once the session has ended; then nothing was changed.
    """

    def __init__(self, bus: AsyncHost, session: str) -> None:
        self._bus = bus
        self._page = page_of_session(session)

    async def read(self) -> str:
        """Return what is on it; "" when it was never used."""
        return await self._bus.converse(notepad.read(self._bus.core, self._page))

    async def read_with_revision(self) -> Revised:
        """Return what is on it, and the revision that `write` may be based on."""
        return await self._bus.converse(notepad.read_revised(self._bus.core, self._page))

    async def write(self, content: str, *, revision: int | None = None, event_id: str | None = None) -> int:
        """Replace all that is on it; "" clears it. Returns its new revision.

        With a `revision`, it is replaced only if it is still at that one, or is empty for 0. Raises RevisionConflict.
        """
        return await self._bus.converse(notepad.write(self._bus.core, self._page, content, revision, event_id))

    async def append(self, text: str, *, line: bool = False, event_id: str | None = None) -> int:
        """Put a text behind what is on it, just as it is given, or as a line of its own. Returns its new revision."""
        if line:
            return await self._bus.converse(notepad.append_line(self._bus.core, self._page, text, event_id))
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
        """Edit a part of it: `append` or `prepend` the content, `delete` it, or `find_replace`.

        What is to be found or deleted has to be there exactly once, or with `replace_all` at least once, and then all
        of it goes. Returns its new revision.
        """
        step = notepad.update(self._bus.core, self._page, operation, content, find, replace, replace_all, event_id)
        return await self._bus.converse(step)

    async def history(self) -> list[Event]:
        """Return all edits as events, oldest first, also of a session that has ended. Raises PositionLost."""
        return await self._bus.converse(history_of(self._bus.core, self._page, SUBJECT))

    async def as_of(self, when: When) -> str:
        """Return what was on it at a position or a time. Raises InvalidPosition."""
        step = remembered_as_of(self._bus.core, self._page, SUBJECT, when)
        return notepad.content_of(await self._bus.converse(step))
