"""Read and change the todo list of a session."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory_edit import MemoryEdit, Revision, check_based_on
from scratchbus.domain.checks import check_flag
from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.memory_events import TodoWritten
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.todo import TodoList, apply_changes, parse_changes
from scratchbus.engine.steps import Step
from scratchbus.projections.todo import SUBJECT, TodoDocument
from scratchbus.readmodel.queries import recollect_one
from scratchbus.readmodel.scope import Core


def read(core: Core, page: str) -> Step[TodoList]:
    """Return the todo list; an empty one if it was never written."""
    return list_of((yield from recollect_one(core, page, SUBJECT)))


def list_of(document: Remembered | None) -> TodoList:
    """Return a document as a todo list."""
    if not isinstance(document, TodoDocument):
        return TodoList()
    return TodoList(todos=list(document.todos), revision=document.revision)


class WriteTodo(MemoryEdit):
    """Replace the todo list, or merge into it."""

    verb, subject = "write_todo", SUBJECT
    todos: Annotated[list[dict[str, str]], CheckedBy(parse_changes)]
    merge: Annotated[bool, CheckedBy(partial(check_flag, "merge"))]
    revision: Revision = None

    def decide(self, occasion: Occasion, document: TodoDocument | None) -> Event | None:
        """See `MemoryEdit`. Raises RevisionConflict."""
        known_list = list_of(document)
        before = known_list.todos
        check_based_on("todo list", self.revision, known_list.revision, before)
        after = apply_changes(before, self.todos, self.merge)
        if after == before and self.event_id is None:
            return None  # with an event id the event is written, so that a retry is recognised later
        merges = self.merge or after == before
        known = {item.id: item for item in before}  # searching a list for each would take quadratic time
        changed = [item for item in after if known.get(item.id) != item] if merges else after
        return occasion.event(TodoWritten, SUBJECT, todos=changed, merge=merges)
