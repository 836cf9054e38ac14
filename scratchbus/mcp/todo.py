"""The tool for the session's todo list."""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired, cast, get_args

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

import scratchbus
from scratchbus import TodoItem
from scratchbus.errors import InvalidField, shown
from scratchbus.mcp.tool_parameters import Based, EventId, Overwrite, replacing
from scratchbus.mcp.toolbox import REPLACES, ToolGroup, tool

_STATUSES: Final = get_args(TodoItem.model_fields["status"].annotation)

_TODOS_SCHEMA: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "content": {"type": "string"},
            "status": {"type": "string", "enum": list(_STATUSES)},
        },
        "required": ["id"],
    },
}


class ItemAnswer(TypedDict):
    """A todo item."""

    id: str
    content: str
    status: str


class TodoAnswer(TypedDict):
    """The todo list; `revision` grows when it changes, and `summary` counts by status."""

    todos: list[ItemAnswer]
    revision: int
    summary: dict[str, int]
    dropped: NotRequired[Annotated[list[str], Field(description="Ids of the items that did not fit into the list.")]]


class TodoTools(ToolGroup):
    """The tool for the todo list of one session."""

    @property
    def _todo(self) -> scratchbus.AsyncTodo:
        return self._workspace.bus.todo(self._workspace.session)

    @tool("Read or write the todo list", REPLACES)
    async def todo(
        self,
        todos: Annotated[  # validated by the todo list, whose errors are clearer than a schema's
            list[Any] | None,
            WithJsonSchema(_TODOS_SCHEMA),
            Field(description="The whole list; with merge, items to change or add."),
        ] = None,
        merge: bool = False,
        revision: Based = None,
        overwrite: Overwrite = False,
        event_id: EventId = None,
    ) -> TodoAnswer:
        """Write the todo list, or read it without arguments."""
        if todos is None:
            return cast(TodoAnswer, (await self._todo.read()).model_dump(mode="json"))
        _check_statuses(todos)
        with replacing("todo list", "todo without arguments", revision, overwrite=overwrite or merge) as base:
            todo_list = await self._todo.write(todos, merge, revision=base, event_id=event_id)
        answer = cast(TodoAnswer, todo_list.model_dump(mode="json"))
        kept = {item.id for item in todo_list.todos}
        if dropped := [id for id in dict.fromkeys(str(item["id"]).strip() for item in todos) if id not in kept]:
            answer["dropped"] = dropped
        return answer


def _check_statuses(todos: list[Any]) -> None:
    """Raise InvalidField for an unknown status, which the todo list itself would treat as pending."""
    for index, item in enumerate(todos):
        status = item.get("status") if isinstance(item, dict) else None
        if status is not None and not (isinstance(status, str) and status.strip().lower() in _STATUSES):
            raise InvalidField(
                f"todos[{index}].status", f"{shown(status)} is not a status; use one of: {', '.join(_STATUSES)}"
            )
