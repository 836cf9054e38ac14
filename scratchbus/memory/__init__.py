"""What agents remember, as programs use it: one module for each memory, with its blocking and its asyncio facade."""

from scratchbus.memory.facade import AsyncMemories, Memories
from scratchbus.memory.notepad import AsyncNotepad, Notepad

__all__ = ["AsyncMemories", "AsyncNotepad", "Memories", "Notepad"]
