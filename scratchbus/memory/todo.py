"""The todo list of a session."""

# Generated from todo_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scratchbus.commands import todo as operations
from scratchbus.commands.memory import history_of
from scratchbus.domain.events import Event
from scratchbus.domain.todo import TodoItem, TodoList, for_injection
from scratchbus.domain.values import page_of_session
from scratchbus.projections.todo import SUBJECT
from scratchbus.readmodel.scope import Host
from scratchbus.timetravel import When, remembered_as_of


class Todo:
    """What a session has to do, in order. Get it from `Bus.todo`.

    Of two that merge at once, both changes are in it. It raises SessionOver once the session has ended.
    """

    def __init__(self, bus: Host, session: str) -> None:
        self._bus = bus
        self._page = page_of_session(session)

    def read(self) -> TodoList:
        """Return its items, its revision, and how many items there are of each status."""
        return self._bus.converse(operations.read(self._bus.core, self._page))

    def write(
        self,
        todos: Iterable[TodoItem | Mapping[str, Any]],
        merge: bool = False,
        *,
        revision: int | None = None,
        event_id: str | None = None,
    ) -> TodoList:
        """Replace it, or with `merge` change the items with these ids and add the others; return what it is then.

        An item has an id, content and a status: pending, in_progress, completed or cancelled. What is too long or too
        much is cut, and the revision grows only when something changes. With a `revision`, it is changed only if it
        is still at that one, or is empty for 0. Raises RevisionConflict, and InvalidField for what is no list of items.
        """
        return self._bus.converse(operations.write(self._bus.core, self._page, todos, merge, revision, event_id))

    def format_for_injection(self) -> str | None:
        """Return what is left to do as a block for a conversation that was compacted; None when nothing is."""
        todo = self.read()
        return for_injection(todo.todos)

    def history(self) -> list[Event]:
        """Return all changes as events, oldest first, also of a session that has ended. Raises PositionLost."""
        return self._bus.converse(history_of(self._bus.core, self._page, SUBJECT))

    def as_of(self, when: When) -> TodoList:
        """Return what it was at a position or a time. Raises InvalidPosition."""
        return operations.list_of(self._bus.converse(remembered_as_of(self._bus.core, self._page, SUBJECT, when)))
