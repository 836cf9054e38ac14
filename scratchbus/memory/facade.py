"""What a bus has of memories: `Bus` and `AsyncBus` are these too."""

from __future__ import annotations

from scratchbus.memory.host import AsyncHost, Host
from scratchbus.memory.notepad import AsyncNotepad, Notepad


class Memories:
    """The memories of a blocking bus."""

    def notepad(self: Host, session: str) -> Notepad:
        """Return the notepad of a session. Raises InvalidName."""
        return Notepad(self, session)


class AsyncMemories:
    """The memories of an asyncio bus."""

    def notepad(self: AsyncHost, session: str) -> AsyncNotepad:
        """Return the notepad of a session. Raises InvalidName."""
        return AsyncNotepad(self, session)
