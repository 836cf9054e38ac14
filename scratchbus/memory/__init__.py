"""What agents remember, as programs use it: one module for each memory, with its blocking and its asyncio facade."""

from scratchbus.memory.memories import Memories
from scratchbus.memory.memories_async import AsyncMemories
from scratchbus.memory.notepad import Notepad
from scratchbus.memory.notepad_async import AsyncNotepad
from scratchbus.memory.notes import Notes
from scratchbus.memory.notes_async import AsyncNotes
from scratchbus.memory.runs import Run
from scratchbus.memory.runs_async import AsyncRun
from scratchbus.memory.scratchpad import Scratchpad
from scratchbus.memory.scratchpad_async import AsyncScratchpad
from scratchbus.memory.todo import Todo
from scratchbus.memory.todo_async import AsyncTodo

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
