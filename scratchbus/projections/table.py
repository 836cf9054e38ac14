"""The table of projections: the read models of memories.

To add a read model, write its `evolve` in a module of its own and add a row to `PROJECTIONS`.
"""

from __future__ import annotations

from typing import Any

from scratchbus.domain.conversations import ScratchFile, Text, Turn
from scratchbus.domain.document import Remembered
from scratchbus.domain.facts import Fact
from scratchbus.domain.items import StoreItem
from scratchbus.domain.memories import Note, Preference, Session
from scratchbus.projections import (
    contexts,
    facts,
    files,
    items,
    notepad,
    notes,
    preferences,
    scratchpad,
    session,
    tasks,
    texts,
    todo,
    turns,
)
from scratchbus.projections.projection import Projection

PROJECTIONS: dict[str, Projection[Any]] = {
    "notepad": Projection(notepad.NotepadDocument, notepad.evolve),
    "note": Projection(Note, notes.evolve),
    "session": Projection(Session, session.evolve),
    "todo": Projection(todo.TodoDocument, todo.evolve),
    "task": Projection(tasks.Task, tasks.evolve),
    "scratchpad": Projection(scratchpad.Pad, scratchpad.evolve),
    "fact": Projection(Fact, facts.evolve),
    "context": Projection(Remembered, contexts.evolve),
    "preference": Projection(Preference, preferences.evolve),
    "turn": Projection(Turn, turns.evolve),
    "file": Projection(ScratchFile, files.evolve),
    "text": Projection(Text, texts.evolve),
    "item": Projection(StoreItem, items.evolve),
}
"""By subject, or its part before the `_`."""
