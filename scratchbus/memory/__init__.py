"""What agents remember, as programs use it: one module for each memory, with its blocking and its asyncio facade."""

from scratchbus.memory.memories import AsyncMemories, Memories
from scratchbus.memory.notepad import AsyncNotepad, Notepad
from scratchbus.memory.notes import AsyncNotes, Notes
from scratchbus.memory.runs import AsyncRun, Run
from scratchbus.memory.scratchpad import AsyncScratchpad, Scratchpad
from scratchbus.memory.todo import AsyncTodo, Todo

__all__ = [
    "AsyncMemories",
    "AsyncNotepad",
    "AsyncNotes",
    "AsyncRun",
    "AsyncScratchpad",
    "AsyncTodo",
    "Memories",
    "Notepad",
    "Notes",
    "Run",
    "Scratchpad",
    "Todo",
]
