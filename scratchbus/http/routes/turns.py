"""The conversation of a session."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator, Field, StringConstraints
from starlette.responses import Response

from scratchbus import document_of
from scratchbus.http import patterns
from scratchbus.http.bodies import Body, JsonBody, NotBlank, optional, whole_number
from scratchbus.http.documents import answer, listing, paged
from scratchbus.http.memories import events_answer, memory_example, memory_fields
from scratchbus.http.moments import When
from scratchbus.http.parameters import Absent, AnyLimit, Once, SessionName
from scratchbus.http.patterns import MAX_SAFE_INTEGER
from scratchbus.http.responses import EVENTS, LINK
from scratchbus.http.schemas import COUNT, STRING, component, document, exact, items_of, listed, or_null
from scratchbus.http.server import MemoryBus
from scratchbus.settings import Settings

router = APIRouter(tags=["turns"])
PATH: Final = "/sessions/{session}/turns"

_SIZE: Final[dict[str, Any]] = {"maxLength": Settings.model_fields["max_turn"].default}  # the bus's setting decides
_NO_SUMMARY: Final[dict[str, Any]] = {
    "not": {"const": "summary"},
    "description": "A word such as user, assistant or tool.",
}
_MANY: Final[dict[str, Any]] = {
    "minItems": 1,
    "maxItems": 10_000,
    "description": "The turns to replace; default: all that are shown.",
}
_Tokens = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER), BeforeValidator(whole_number)]
_ShownId = Annotated[str, StringConstraints(pattern=patterns.SHOWN_TURN)]
_TurnId = Annotated[str, StringConstraints(pattern=patterns.TURN)]
AfterTurn = Annotated[
    _TurnId | Absent, Query(description="Only turns after this one.", examples=["turn_1795386035607"])
]


class NewTurn(Body, example={"role": "user", "content": "Why does the payment fail?", "tokens": 6}):
    """A turn; `tokens` is its length, `task` the task it belongs to."""

    role: Annotated[str, StringConstraints(pattern=patterns.TYPE)] = Field(json_schema_extra=_NO_SUMMARY)
    content: NotBlank = Field(json_schema_extra=_SIZE)
    tokens: _Tokens = optional()
    task: Annotated[str, StringConstraints(pattern=patterns.TASK)] = optional()


class Compaction(Body, example={"summary": "The bank is closed."}):
    """A summary that takes the place of turns."""

    summary: NotBlank = Field(json_schema_extra=_SIZE)
    turns: list[_ShownId] = optional(json_schema_extra=_MANY)
    tokens: _Tokens = optional()


_FIELDS: Final = memory_fields("role", "content", tokens=or_null(COUNT), task=or_null(STRING), replaces=listed(STRING))
_EXAMPLE: Final = memory_example(
    "turn_1795386035607", role="user", content="Why does the payment fail?", tokens=6, task=None, replaces=[]
)
_SUMMARY: Final = {**_EXAMPLE, "role": "summary", "content": "The bank is closed.", "replaces": ["turn_1795386035606"]}
_SCHEMA: Final = component("Turn", exact(**_FIELDS))
_TURN: Final = document("The turn", _SCHEMA, _EXAMPLE)
_COMPACTED: Final = document("The summary, which is a turn", _SCHEMA, _SUMMARY)
_TURNS: Final = document(
    "The turns, oldest first; `next` is the cursor of later turns, null at the end",
    exact(items=listed(_SCHEMA), next=or_null(STRING)),
    {"items": [_EXAMPLE], "next": None},
    {"Link": LINK},
)
_SHOWN: Final = items_of("The turns, with summaries in place of the turns they replace", _SCHEMA, _SUMMARY)


@router.get(PATH, responses={200: _TURNS})
async def list_turns(
    request: Request,
    bus: MemoryBus,
    session: SessionName,
    after: AfterTurn = None,
    limit: AnyLimit = None,
    at: When = None,
) -> Response:
    """Return the original turns, oldest first."""
    found = await bus.turns(session).list(after=after, limit=None if limit is None else limit + 1, at=at)
    shown = found[:limit]
    return paged(request, shown, shown[-1].id if len(shown) < len(found) else None)


@router.post(PATH, status_code=201, responses={201: _TURN})
async def append_turn(bus: MemoryBus, session: SessionName, guards: Once, body: JsonBody[NewTurn]) -> Response:
    """Append a turn; without a task it belongs to each task that is open."""
    return answer(document_of(await bus.turns(session).append(**body.given, event_id=guards.event_id)), 201)


@router.get(PATH + "/shown", responses={200: _SHOWN})
async def list_shown_turns(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return the turns that an agent is shown, with summaries in place of the turns they replace."""
    turns = bus.turns(session)
    return answer(listing(await (turns.shown() if at is None else turns.as_of(at))))


@router.post(PATH + "/compact", status_code=201, responses={201: _COMPACTED})
async def compact_turns(bus: MemoryBus, session: SessionName, guards: Once, body: JsonBody[Compaction]) -> Response:
    """Replace turns, by default all that are shown, with a summary; the turns stay in the list."""
    return answer(document_of(await bus.turns(session).compact(**body.given, event_id=guards.event_id)), 201)


@router.get(PATH + "/history", responses={200: EVENTS})
async def get_turns_history(bus: MemoryBus, session: SessionName, at: When = None) -> Response:
    """Return the turns and compactions as events, oldest first, also after the session has ended."""
    return await events_answer(bus, f"session:{session}", await bus.turns(session).history(), at)
