"""The kinds of memories that a bus keeps in caches, except facts, whose kind depends on their relations."""

from __future__ import annotations

from scratchbus.domain.conversations import ScratchFile, Text, Turn
from scratchbus.domain.items import PREFIX as ITEM
from scratchbus.domain.items import StoreItem
from scratchbus.domain.memories import Note, Preference
from scratchbus.projections import notes, preferences, session
from scratchbus.projections.conversation import Conversation
from scratchbus.projections.item_index import ItemIndex
from scratchbus.projections.memory_index import Directory, PreferenceList
from scratchbus.projections.notebook import Notebook
from scratchbus.projections.tasks import Task
from scratchbus.readmodel.memory_cache import MemoryKind

NOTES = MemoryKind(Notebook, (Note,), (notes.PREFIX, session.SUBJECT))
"""The notes of sessions."""

ITEMS = MemoryKind(ItemIndex, (StoreItem,), (ITEM,))
"""The items of stores."""

PREFERENCES = MemoryKind(PreferenceList, (Preference,), (preferences.PREFIX,))
"""The preferences of scopes."""

CONVERSATIONS = MemoryKind(Conversation, (Turn, Task), ("turn_", "task_", session.SUBJECT))
"""The conversations of sessions."""

DIRECTORIES = MemoryKind(Directory, (ScratchFile, Text), ("file_", "text_", session.SUBJECT))
"""The files of sessions, and the texts of scopes."""
