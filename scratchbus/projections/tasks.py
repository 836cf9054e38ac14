"""The tasks of a session: each is a document of its own."""

from __future__ import annotations

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.memory_events import TaskBegun, TaskEnded
from scratchbus.projections.memory_document import create_document, update_document
from scratchbus.projections.projection import FoldError


class Task(Remembered):
    """A task, and its summary once it has ended."""

    title: str
    summary: str | None = None


def evolve(task: Task | None, event: Event) -> Task | None:
    """Return a task after an event; None once it is erased."""
    if isinstance(event, TaskBegun):
        return create_document(Task, event, title=event.title)
    if event.kind == "erased":
        return None
    if isinstance(event, TaskEnded):
        if task is None:
            raise FoldError("task_ended of a task that was never begun")
        return update_document(task, event, summary=event.summary)
    return task
