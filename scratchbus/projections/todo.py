"""The todo list of a session: ordered items."""

from __future__ import annotations

from pydantic import Field

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.memory_events import TodoWritten
from scratchbus.domain.page_events import Erased
from scratchbus.domain.todo import TodoItem, upserted
from scratchbus.projections.memory_document import create_document, upsert_document

SUBJECT = "todo"


class TodoDocument(Remembered):
    """The items of a todo list, and the number of its changes."""

    todos: list[TodoItem] = Field(default_factory=list)
    revision: int = 0


def evolve(document: TodoDocument | None, event: Event) -> TodoDocument | None:
    """Return the todo list after an event. An erased list is empty and may be written again."""
    if isinstance(event, Erased):
        return create_document(TodoDocument, event, version=event.version, revision=event.version)
    if isinstance(event, TodoWritten):
        before, revision = (document.todos, document.revision) if document else ([], 0)
        todos = upserted(before if event.merge else [], event.todos)
        return upsert_document(TodoDocument, document, event, todos=todos, revision=revision + (todos != before))
    return document
