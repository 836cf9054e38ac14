"""What the events of agents say, on the command line."""

from __future__ import annotations

from scratchbus.domain.agent_events import RunEnded, ScratchpadWritten, TaskBegun, TaskEnded, TodoWritten
from scratchbus.domain.events import Event
from scratchbus.domain.memory_events import (
    NoteAdded,
    NotepadEdited,
    NotepadWritten,
    NoteUpdated,
    SessionSpawned,
    SessionStarted,
)
from scratchbus.edges.cli.words import TODO_MARKS, plural


def remembered(event: Event) -> str:
    """Return what an event about what an agent remembers says beyond its kind."""
    match event:
        case NotepadWritten() | ScratchpadWritten():
            return event.content or "cleared"
        case NotepadEdited(operation="find_replace"):
            return f"{event.find} → {event.replace}"
        case NotepadEdited():
            return f"{event.operation}: {event.content}"
        case NoteAdded():
            return _note(event.content, event.tags)
        case NoteUpdated():
            return _note(event.content or "", event.tags or [])
        case SessionSpawned():
            return f"{event.session}{', a fork' if event.fork else ''}"
        case SessionStarted():
            return f"{'a fork of' if event.fork else 'from'} {event.parent}"
        case TodoWritten():
            items = " · ".join(f"{TODO_MARKS[item.status]} {item.id} {item.content}" for item in event.todos)
            return f"changed: {items}" if event.merge else items or "cleared"
        case TaskBegun():
            return event.title
        case TaskEnded():
            return event.summary
        case RunEnded():
            return f"{event.outcome} after {plural(len(event.steps), 'step')}: {event.task}"
    return ""


def _note(content: str, tags: list[str]) -> str:
    return " ".join([content, *(f"#{tag}" for tag in tags)]).strip()
