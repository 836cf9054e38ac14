"""The memories: which fold is told of which subject, and what an event does to all that a page remembers.

A memory is a fold `evolve(document | None, event) -> document | None` in a module of its own, and a row in `MEMORIES`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple

from scratchbus.domain.event import Event
from scratchbus.domain.memories import Note, Remembered, Session
from scratchbus.domain.trusted import trusted
from scratchbus.domain.values import check_id
from scratchbus.projections import contexts, notepad, notes, scratchpad, session, tasks, todo


class Memory(NamedTuple):
    """A kind of memory: its documents, and the fold that makes them."""

    document: type[Remembered]
    evolve: Callable[[Any, Event], Remembered | None]


MEMORIES: dict[str, Memory] = {
    "notepad": Memory(notepad.Text, notepad.evolve),
    "note": Memory(Note, notes.evolve),
    "session": Memory(Session, session.evolve),
    "todo": Memory(todo.Plan, todo.evolve),
    "task": Memory(tasks.Task, tasks.evolve),
    "scratchpad": Memory(scratchpad.Pad, scratchpad.evolve),
    "context": Memory(Remembered, contexts.evolve),
}
"""By the subject, or what comes before the `_` in it."""


def memory_of(subject: str) -> Memory | None:
    """Return the memory that a subject belongs to; None for an observation, whose ids have no small letters."""
    return MEMORIES.get(subject.partition("_")[0]) if subject[:1] > "Z" else None


def is_remembered(subject: str) -> bool:
    """Say whether a subject belongs to a memory."""
    return memory_of(subject) is not None


def check_subject(id: object) -> str:
    """Return the id of an observation, or the subject of what is remembered. Raises InvalidId."""
    return id if isinstance(id, str) and is_remembered(id) else check_id(id)


def fold(document: Remembered | None, event: Event, memory: Memory) -> tuple[Remembered | None, str]:
    """Return the document after an event, and why it could not be folded, if so; then it is marked as damaged."""
    try:
        return memory.evolve(document, event), ""
    except (ValueError, TypeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    if document is not None and document.seq < event.seq:
        document = damage(document, event.ms, event.seq)
    return document, reason


def damage(document: Remembered, ms: int, seq: int) -> Remembered:
    """Return a document after an event that could not be read: only its version and position move."""
    changes = {"version": document.version + 1, "ms": ms, "seq": seq, "damaged": True}
    return trusted(type(document), document.__dict__ | changes)


def is_over(event: Event) -> bool:
    """Say whether an event archives all that its page remembers, but what is known of the session itself."""
    return event.kind == "session_ended"


def fold_page(documents: MutableMapping[str, Remembered | None], event: Event) -> str:
    """Fold an event into what its page remembers, by subject; return why it could not be, if so.

    An event that is about no memory changes nothing.
    """
    memory = memory_of(event.subject)
    if memory is None:
        return ""
    documents[event.subject], problem = fold(documents.get(event.subject), event, memory)
    if is_over(event):
        for subject in [each for each in documents if each != event.subject]:
            documents[subject] = None
    return problem
