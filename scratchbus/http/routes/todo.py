"""The todo list of a session."""

from __future__ import annotations

from typing import Any, Final, Literal

from fastapi import APIRouter
from starlette.responses import Response

from scratchbus import TodoList
from scratchbus.http.bodies import Body, JsonBody, NotBlank, optional, schema_of
from scratchbus.http.documents import answer
from scratchbus.http.memories import Based, events_answer
from scratchbus.http.moments import When
from scratchbus.http.parameters import Label, SessionName
from scratchbus.http.responses import EVENTS
from scratchbus.http.schemas import REFERENCE, REVISION, document, listed
from scratchbus.http.server import MemoryBus

router = APIRouter(tags=["todo"])
PATH: Final = "/sessions/{session}/todo"

Status = Literal["pending", "in_progress", "completed", "cancelled"]


class Item(Body):
    """An item; its id is the agent's own. Content beyond 4,000 characters is cut."""

    id: Label
    content: NotBlank
    status: Status = "pending"


class TodoItemChange(Body):
    """A change of the item with this id, or a new one, which needs content."""

    id: Label
    content: NotBlank = optional()
    status: Status = optional()


class TodoItems(Body, example={"todos": [{"id": "1", "content": "Ask the bank"}]}):
    """A whole list, in order; items beyond the 256th are cut."""

    todos: list[Item]


class TodoChanges(Body, example={"todos": [{"id": "1", "status": "completed"}]}):
    """Changes of a list."""

    todos: list[TodoItemChange]


_LIST: Final[dict[str, Any]] = schema_of(TodoList, "serialization")
_LIST["properties"]["todos"] = listed({"$ref": f"{REFERENCE}TodoItem"})  # as in the events
_TODO: Final = document(
    "The list, with the number of items in each status; its revision is the ETag",
    _LIST | {"required": ["todos", "revision", "summary"]},
    {
        "todos": [{"id": "1", "content": "Ask the bank", "status": "in_progress"}],
        "revision": 2,
        "summary": {"total": 1, "pending": 0, "in_progress": 1, "completed": 0, "cancelled": 0},
    },
    REVISION,
)


@router.get(PATH, responses={200: _TODO})
async def read_todo(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return the todo list of a session."""
    todo = bus.todo(session)
    return _answer(await (todo.read() if at is None else todo.as_of(at)))


@router.put(PATH, responses={200: _TODO})
async def write_todo(bus: MemoryBus, session: SessionName, guards: Based, body: JsonBody[TodoItems]) -> Response:
    """Replace the list."""
    return _answer(await bus.todo(session).write(body.given["todos"], **guards.of_revision()))


@router.patch(PATH, responses={200: _TODO})
async def merge_todo(bus: MemoryBus, session: SessionName, guards: Based, body: JsonBody[TodoChanges]) -> Response:
    """Change the items with these ids, and append the others; 409 if one of those has no content."""
    return _answer(await bus.todo(session).write(body.given["todos"], merge=True, **guards.of_revision()))


@router.get(PATH + "/history", responses={200: EVENTS})
async def get_todo_history(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return all changes as events, oldest first, also after the session has ended."""
    return await events_answer(bus, f"session:{session}", await bus.todo(session).history(), at)


def _answer(found: TodoList) -> Response:
    return answer(found.model_dump(mode="json"), version=found.revision)
