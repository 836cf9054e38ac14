"""Reading and changing the todo list of a session."""

from __future__ import annotations

from scratchbus.commands.memory import Edit, check_based_on, edit
from scratchbus.domain.agent_events import TodoWritten
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Remembered
from scratchbus.domain.todo import TodoList, given, written
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, shown
from scratchbus.eventlog.because import reasons
from scratchbus.projections.todo import SUBJECT, Plan
from scratchbus.readmodel.queries import recollect
from scratchbus.readmodel.scope import Core


def read(core: Core, page: str) -> Step[TodoList]:
    """Return the todo list; an empty one when it was never written."""
    found = yield from recollect(core.log, page, [SUBJECT], core.fresh)
    return list_of(found.get(SUBJECT))


def list_of(document: Remembered | None) -> TodoList:
    """Return a document as a todo list."""
    if not isinstance(document, Plan):
        return TodoList()
    return TodoList(todos=list(document.todos), revision=document.revision)


def write(
    core: Core, page: str, todos: object, merge: bool, revision: int | None, event_id: str | None
) -> Step[TodoList]:
    """Replace the todo list, or merge into it; return what it is then. Raises RevisionConflict."""
    if not isinstance(merge, bool):
        raise InvalidField("merge", f"{shown(merge)} is neither true nor false")
    changes = given(todos)
    wanted = Edit.based_on(revision, page, SUBJECT, event_id, "write_todo", changes, merge)

    def make(document: Remembered | None) -> Event | None:
        known_list = list_of(document)
        check_based_on("todo list", revision, known_list.revision, known_list.todos)
        before = known_list.todos
        after = written(before, changes, merge)
        if after == before and event_id is None:
            return None  # with an id it is kept, so that a retry is known whatever comes in between
        merges = merge or after == before
        known = {
            item.id: item for item in before
        }  # to look through a list for each item takes the square of its length
        told = [item for item in after if known.get(item.id) != item] if merges else after
        return TodoWritten(by=core.acting(), **reasons(), todos=told, merge=merges)

    return list_of((yield from edit(core, wanted, make)))
