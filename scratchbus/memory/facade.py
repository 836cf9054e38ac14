"""What a bus has of memories: `Bus` and `AsyncBus` are these too."""

from __future__ import annotations

from scratchbus.memory.host import AsyncHost, Host
from scratchbus.memory.notepad import AsyncNotepad, Notepad
from scratchbus.memory.notes import AsyncNotes, Notes


class Memories:
    """The memories of a blocking bus."""

    def notes(self: Host, session: str) -> Notes:
        """Return the notes of a session. Raises InvalidName."""
        return Notes(self, session)

    def notepad(self: Host, session: str) -> Notepad:
        """Return the notepad of a session. Raises InvalidName."""
        return Notepad(self, session)


class AsyncMemories:
    """The memories of an asyncio bus."""

    def notes(self: AsyncHost, session: str) -> AsyncNotes:
        """Return the notes of a session. Raises InvalidName."""
        return AsyncNotes(self, session)

    def notepad(self: AsyncHost, session: str) -> AsyncNotepad:
        """Return the notepad of a session. Raises InvalidName."""
        return AsyncNotepad(self, session)
