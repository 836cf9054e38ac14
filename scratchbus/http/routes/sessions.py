"""Sessions and their tasks."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter
from starlette.responses import Response

from scratchbus import AsyncBus, SessionInfo
from scratchbus.http import problems
from scratchbus.http.bodies import Body, JsonBody, NotBlank, optional, schema_of
from scratchbus.http.documents import answer, location, observation_answer
from scratchbus.http.memories import TaskId, after_write
from scratchbus.http.moments import When
from scratchbus.http.parameters import AnySession, Once, SessionName
from scratchbus.http.problems import Refusal
from scratchbus.http.responses import OBSERVATION
from scratchbus.http.schemas import STRING, document, exact, listed, location_of, with_headers
from scratchbus.http.server import MemoryBus

router = APIRouter(tags=["sessions"])
ONE: Final = "/sessions/{session}"


class Spawn(Body, example={"session": "s2", "copy_notepad": True}):
    """How to start a session from another: its name, else one is made; with a copy of the notepad, or without."""

    session: AnySession = optional()
    copy_notepad: bool = False


class Fork(Body, example={"session": "s3"}):
    """How to start a session with a copy of the notepad: its name, else one is made."""

    session: AnySession = optional()


class NewTask(Body, example={"title": "Find the missing payment"}):
    """A task to begin."""

    title: NotBlank


class TaskEnd(Body, example={"summary": "The bank had returned it."}):
    """What a task came to."""

    summary: NotBlank


class Result(Body, example={"result": "The payment was returned on Monday."}):
    """The result that a session reports to its parent."""

    result: NotBlank


_INFO: Final[dict[str, Any]] = schema_of(SessionInfo, "serialization") | {"additionalProperties": False}
_EXAMPLE: Final[dict[str, Any]] = {
    "id": "s2",
    "parent": "s1",
    "fork": False,
    "children": [],
    "ended": False,
    "agent": "analyst",
    "updated_at": "2026-11-22T22:20:35.607000Z",
}
_SESSION: Final = document("The session; `agent` wrote its newest event", _INFO, _EXAMPLE)
_STARTED: Final = with_headers(_SESSION, location_of("/api/v1/sessions/s2"))
_REPORTED: Final = with_headers(OBSERVATION, location_of("/api/v1/pages/main/observations/01M82NHKCCEBT4DDKQ2K3C35T3"))
_SESSIONS: Final = document(
    "All sessions, each with its parent and its children, and the agents that have a scratchpad",
    exact(items=listed(_INFO), agents=listed(STRING)),
    {"items": [_EXAMPLE], "agents": ["analyst"]},
)
_BEGUN: Final = document(
    "The id of the task, needed to end it",
    exact(task=STRING),
    {"task": "task_1795386035607@s1"},
)
_ENDED: Final = document(
    "The text that replaces the task's part of the conversation",
    exact(text=STRING),
    {"text": "[Task ended: Find the missing payment — this summary replaces its steps]\nThe bank had returned it."},
)


@router.get("/sessions", responses={200: _SESSIONS})
async def list_sessions(bus: MemoryBus, at: When = None) -> Response:
    """List all sessions, and the agents that have a scratchpad."""
    found = await bus.sessions(as_of=at)
    return answer({"items": [each.model_dump(mode="json") for each in found], "agents": await bus.agents()})


@router.get(ONE, responses={200: _SESSION})
async def get_session(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return a session: its parent, its children, and whether it has ended."""
    return answer(await _described(bus, session, at))


@router.post(ONE + "/spawn", status_code=201, responses={201: _STARTED})
async def spawn_session(bus: MemoryBus, session: SessionName, guards: Once, body: JsonBody[Spawn]) -> Response:
    """Start a session from this one; its notepad is empty, or a copy."""
    event_id = guards.event_id or uuid4().hex
    return await _session_answer(bus, await bus.spawn_session(session, event_id=event_id, **body.given), event_id)


@router.post(ONE + "/fork", status_code=201, responses={201: _STARTED})
async def fork_session(bus: MemoryBus, session: SessionName, guards: Once, body: JsonBody[Fork]) -> Response:
    """Start a session from this one with a copy of its notepad."""
    event_id = guards.event_id or uuid4().hex
    return await _session_answer(bus, await bus.fork_session(session, event_id=event_id, **body.given), event_id)


@router.post(ONE + "/end", responses=problems.answers({200: _SESSION}, 409))
async def end_session(bus: MemoryBus, session: SessionName, guards: Once) -> Response:
    """End a session: archive its notes, notepad and todo list in one step; their past can still be read."""
    event_id = guards.event_id or uuid4().hex
    await bus.end_session(session, event_id=event_id)
    with after_write(event_id):
        return answer(await _described(bus, session))


@router.post(ONE + "/tasks", status_code=201, responses={201: _BEGUN})
async def begin_task(bus: MemoryBus, session: SessionName, guards: Once, body: JsonBody[NewTask]) -> Response:
    """Begin a task of a session."""
    return answer({"task": await bus.begin_task(session, body.title, event_id=guards.event_id)}, 201)


@router.post("/tasks/{task}/end", responses={200: _ENDED})
async def end_task(bus: MemoryBus, task: TaskId, guards: Once, body: JsonBody[TaskEnd]) -> Response:
    """End a task."""
    return answer({"text": await bus.end_task(task, body.summary, event_id=guards.event_id)})


@router.post(ONE + "/result", status_code=201, responses={201: _REPORTED})
async def report_result(bus: MemoryBus, session: SessionName, guards: Once, body: JsonBody[Result]) -> Response:
    """Add the result of a session to the page of its parent, as an observation; no notepad is changed."""
    return observation_answer(await bus.report_result(session, body.result, event_id=guards.event_id), 201)


async def _described(bus: AsyncBus, session: str, at: str | None = None) -> dict[str, Any]:
    found = await bus.sessions([session], as_of=at)
    if not found:
        raise Refusal(404, "not-found", f"there is no session {session!r}; list the sessions to find their names")
    return found[0].model_dump(mode="json")


async def _session_answer(bus: AsyncBus, session: str, event_id: str) -> Response:
    with after_write(event_id):
        return answer(await _described(bus, session), 201, location("sessions", session))
