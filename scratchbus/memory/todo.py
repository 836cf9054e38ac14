"""The todo list of a session."""

# Generated from todo_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scratchbus.commands import todo as operations
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.todo import TodoItem, TodoList, for_injection
from scratchbus.domain.values import page_of_session
from scratchbus.memory.page_memory import PageMemory, timetravel
from scratchbus.projections.todo import SUBJECT
from scratchbus.readmodel.memory_history import history_of


class Todo(PageMemory):
    """The ordered todo list of a session. Get it from `Bus.todo`.

    Concurrent merges are all kept. A write takes `event_id`, an id the caller chooses to make a retry safe: the retry
    returns the list as the first attempt left it. A write raises SessionOver once the session has ended.
    """

    _page_of = staticmethod(page_of_session)

    def read(self) -> TodoList:
        """Return its items, its revision, and the number of items in each status."""
        return self._do(operations.read)

    def write(
        self,
        todos: Iterable[TodoItem | Mapping[str, Any]],
        merge: bool = False,
        *,
        revision: int | None = None,
        event_id: str | None = None,
    ) -> TodoList:
        """Replace the list; with `merge`, update the items with these ids and append the others. Returns the new list.

        An item has an id, content and a status: pending, in_progress, completed or cancelled. Content that is too
        long and items beyond the limit are cut. The revision grows only when something changes. With a `revision`,
        the list is changed only if it is still at that revision (0: still empty). Raises RevisionConflict, and
        InvalidField unless `todos` is a list of items.
        """
        return operations.list_of(self._edit(operations.WriteTodo, locals()))

    def format_for_injection(self) -> str | None:
        """Return the open items as a block to add to a compacted conversation; None if none are open."""
        todo = self.read()
        return for_injection(todo.todos)

    def history(self) -> list[AnyEvent]:
        """Return all changes as events, oldest first, also after the session has ended. Raises PositionLost."""
        return self._do(history_of, SUBJECT)

    def as_of(self, when: timetravel.When) -> TodoList:
        """Return the list at a position or a time. Raises InvalidPosition."""
        return operations.list_of(self._do(timetravel.remembered_as_of, SUBJECT, when))
