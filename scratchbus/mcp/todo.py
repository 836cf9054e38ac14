"""The tool for the session's todo list."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus import TodoItem
from scratchbus.mcp.parameters import Based, EventId, Overwrite, base_of, explained
from scratchbus.mcp.toolbox import REPLACES, ToolGroup, tool
from scratchbus.mcp.workspace import Workspace

_GIVEN = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "content": {"type": "string"},
            "status": {"type": "string", "enum": TodoItem.model_json_schema()["properties"]["status"]["enum"]},
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


class TodoTools(ToolGroup):
    """The tool for the todo list of one session."""

    def __init__(self, workspace: Workspace) -> None:
        self._todo = workspace.bus.todo(workspace.session)

    @tool("Read or write the todo list", REPLACES)
    async def todo(
        self,
        todos: Annotated[  # validated by the list itself, whose errors are clearer than those of a schema
            list[Any] | None,
            WithJsonSchema(_GIVEN),
            Field(
                description="The complete list in order; with `merge`, only the items to change. Leave it out to read."
            ),
        ] = None,
        merge: Annotated[
            bool, Field(description="Update the items with these ids and add new ones, instead of replacing the list.")
        ] = False,
        revision: Based = None,
        overwrite: Overwrite = False,
        event_id: EventId = None,
    ) -> TodoAnswer:
        """Read or write the session's todo list. To replace it without `merge`, pass the `revision` you read."""
        if todos is None:
            plan = await self._todo.read()
        else:
            with explained("todo list", "todo without arguments", revision):
                base = base_of(revision, overwrite or merge)
                plan = await self._todo.write(todos, merge, revision=base, event_id=event_id)
        items: list[ItemAnswer] = [
            {"id": each.id, "content": each.content, "status": each.status} for each in plan.todos
        ]
        return {"todos": items, "revision": plan.revision, "summary": plan.summary}
