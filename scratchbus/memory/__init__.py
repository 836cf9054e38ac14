"""What agents remember, as programs use it: one module for each memory, with its blocking and its asyncio facade."""

from scratchbus.memory.facade import AsyncMemories, Memories
from scratchbus.memory.notepad import AsyncNotepad, Notepad
from scratchbus.memory.notes import AsyncNotes, Notes

__all__ = ["AsyncMemories", "AsyncNotepad", "AsyncNotes", "Memories", "Notepad", "Notes"]
