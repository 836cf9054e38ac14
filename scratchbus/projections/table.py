"""The table of projections: the read model of every subject.

To add a read model, write its `evolve` in a module of its own and add a row to `PROJECTIONS`.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial
from typing import Any

from scratchbus.domain.conversations import ScratchFile, Text, Turn
from scratchbus.domain.event import Event
from scratchbus.domain.facts import Fact
from scratchbus.domain.items import StoreItem
from scratchbus.domain.memories import Note, Preference, Remembered, Session
from scratchbus.domain.observation import Observation
from scratchbus.domain.values import check_id
from scratchbus.projections import (
    contexts,
    facts,
    files,
    items,
    notepad,
    notes,
    preferences,
    scratch_page,
    scratchpad,
    session,
    tasks,
    texts,
    todo,
    turns,
)
from scratchbus.projections.projection import Indexes, Projection

SCRATCH_PAGE = Projection(
    Observation,
    scratch_page.evolve,
    store="docs",
    indexes=Indexes(scratch_page.index_entries, scratch_page.INDEXED, scratch_page.next_moment),
)

IN_PLACE = replace(SCRATCH_PAGE, evolve=partial(scratch_page.evolve, in_place=True))
"""The same for a fold that is the only user of the observations: it changes them in place, at half the cost."""

PROJECTIONS: dict[str, Projection[Any]] = {
    "": SCRATCH_PAGE,
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
"""By subject, or its part before the `_`; "" is the row of observations, whose subjects are their ids."""


def projection_of(subject: str) -> Projection[Any]:
    """Return the projection of a subject."""
    return PROJECTIONS.get(subject.partition("_")[0], SCRATCH_PAGE)


def is_remembered(subject: str) -> bool:
    """Return whether a subject is a memory rather than an observation."""
    return projection_of(subject) is not SCRATCH_PAGE


def check_subject(id: object) -> str:
    """Return the id of an observation, or the subject of a memory. Raises InvalidId."""
    return id if isinstance(id, str) and is_remembered(id) else check_id(id)


def is_over(event: Event) -> bool:
    """Return whether an event ends a session, which archives all memories of its page except the session itself."""
    return event.kind == "session_ended" and is_remembered(event.subject)


def fold_page(documents: MutableMapping[str, Any], event: Event) -> str:
    """Fold an event into the documents of its page, by subject; return the reason if it could not be folded."""
    subject = event.subject
    documents[subject], problem = projection_of(subject).fold(documents.get(subject), event)
    if is_over(event):
        for kept in [each for each in documents if each != subject and is_remembered(each)]:
            documents[kept] = None
    return problem
