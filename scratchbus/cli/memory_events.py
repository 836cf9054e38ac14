"""What the events of agents say, on the command line."""

from __future__ import annotations

from scratchbus.cli.text import TODO_MARKS, plural
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


def remembered(event: Event) -> str:
    """Return what an event about what an agent remembers says beyond its kind."""
    match event:
        case NotepadWritten() | ScratchpadWritten():
            return event.content or "cleared"
        case NotepadEdited():
            edit = f"{event.find} → {event.replace}" if event.find else event.content
            return f"{event.operation.replace('_', ' ')}: {edit}"
        case NoteAdded():
            return event.content
        case NoteUpdated():
            tags = None if event.tags is None else f"tags: {', '.join(event.tags) or 'none'}"
            return ", ".join(part for part in (event.content, tags) if part is not None)
        case SessionSpawned():
            return f"{'fork' if event.fork else 'spawn'} {event.session}"
        case SessionStarted():
            return f"from {event.parent}"
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
