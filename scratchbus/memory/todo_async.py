"""The todo list of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scratchbus.commands import todo as operations
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.todo import TodoItem, TodoList, for_injection
from scratchbus.domain.values import page_of_session
from scratchbus.memory.page_memory_async import AsyncPageMemory, timetravel
from scratchbus.projections.todo import SUBJECT
from scratchbus.readmodel.memory_history import history_of


class AsyncTodo(AsyncPageMemory):
    """The ordered todo list of a session. Get it from `AsyncBus.todo`.

    Concurrent merges are all kept. A write takes `event_id`, an id the caller chooses to make a retry safe: the retry
    returns the list as the first attempt left it. A write raises SessionOver once the session has ended.
    """

    _page_of = staticmethod(page_of_session)

    async def read(self) -> TodoList:
        """Return its items, its revision, and the number of items in each status."""
        return await self._do(operations.read)

    async def write(
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
        return operations.list_of(await self._edit(operations.WriteTodo, locals()))

    async def format_for_injection(self) -> str | None:
        """Return the open items as a block to add to a compacted conversation; None if none are open."""
        todo = await self.read()
        return for_injection(todo.todos)

    async def history(self) -> list[AnyEvent]:
        """Return all changes as events, oldest first, also after the session has ended. Raises PositionLost."""
        return await self._do(history_of, SUBJECT)

    async def as_of(self, when: timetravel.When) -> TodoList:
        """Return the list at a position or a time. Raises InvalidPosition."""
        return operations.list_of(await self._do(timetravel.remembered_as_of, SUBJECT, when))
