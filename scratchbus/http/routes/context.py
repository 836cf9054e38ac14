"""Contexts: the text that an agent is shown, with the origin of each part."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import BeforeValidator, ConfigDict, Field
from starlette.responses import Response

from scratchbus import Context, ContextPart, Note, Observation, Surfaced, TodoItem, document_of, estimate_tokens
from scratchbus.daemon import counts
from scratchbus.http.bodies import Body, JsonBody, optional, whole_number
from scratchbus.http.documents import answer, check_source
from scratchbus.http.parameters import AnyPage, AnySession, Once
from scratchbus.http.schemas import COUNT, STRING, any_of, document, exact, listed, one_of, or_null, record
from scratchbus.http.server import CallerOf, MemoryBus
from scratchbus.settings import MAX_BUDGET

router = APIRouter(tags=["context"])

Budget = Annotated[int, Field(ge=1, le=MAX_BUDGET), BeforeValidator(whole_number)]


class ContextBody(Body, example={"session": "s1", "page": "main", "budget": 4000}):
    """The arguments of a context; the default budget comes from the settings."""

    model_config = ConfigDict(
        json_schema_extra=any_of(*({"required": [name]} for name in ("session", "agent", "page")))
    )

    session: AnySession = optional()
    agent: AnySession = optional()
    page: AnyPage = optional()
    budget: Budget = optional()
    query: str = optional()
    sections: list[str] = Field(default=[], description="Your own texts, shown first.")
    record: bool = Field(default=False, description="Record which observations were shown.")
    strict: bool = Field(default=False, description="Refuse (409) rather than cut `sections` or the notepad.")


class Question(Body, example={"query": "missing payment", "session": "s1", "page": "main"}):
    """What to find: notes of a session and open observations of a page."""

    query: str
    session: AnySession = optional()
    page: AnyPage = "main"
    budget: Budget = optional()
    record: bool = Field(default=False, description="Record which observations were shown.")


_COUNTS: Final = {"type": "object", "additionalProperties": COUNT}
_ITEM: Final = record(
    ("text", "tokens", "kind"),
    text=STRING,
    tokens=COUNT,
    kind=one_of("observation", "note", "todo", "text"),
    id=STRING,
    page=STRING,
    version=COUNT,
    position=STRING,
)
_SECTION: Final = exact(
    name=STRING,
    text=STRING,
    tokens=COUNT,
    left_out=COUNT,
    items=listed(_ITEM),
)
_FIELDS: Final[dict[str, Any]] = {
    "text": STRING,
    "tokens": COUNT,
    "budget": COUNT,
    "left_out": _COUNTS,
    "exposed": _COUNTS,
    "position": or_null(STRING),
    "sections": listed(_SECTION),
}
_LINE: Final = "- risk_alert from fraud_detector: 01M82NHKCCEBT4DDKQ2K3C35T3 v1, priority 90, …\n> A fraud ring …"
_EXAMPLE: Final[dict[str, Any]] = {
    "text": f"## Scratch Page: main\n{_LINE}",
    "tokens": 61,
    "budget": 4000,
    "left_out": {"observations": 0},
    "exposed": {"01M82NHKCCEBT4DDKQ2K3C35T3": 1},
    "position": None,
    "sections": [
        {
            "name": "observations",
            "text": f"## Scratch Page: main\n{_LINE}",
            "tokens": 61,
            "left_out": 0,
            "items": [
                {
                    "text": _LINE,
                    "tokens": 52,
                    "kind": "observation",
                    "id": "01M82NHKCCEBT4DDKQ2K3C35T3",
                    "page": "main",
                    "version": 1,
                    "position": "1795386035607-1",
                }
            ],
        }
    ],
}
_ASSEMBLED: Final = document(
    "The text, its sections with their items, the items left out, and the observations in it",
    exact(**_FIELDS),
    _EXAMPLE,
)
_MATCH: Final = exact(
    score={"type": "number"},
    kind=one_of("observation", "note"),
    item={
        "type": "object",
        "required": ["id", "content"],
        "properties": {"id": STRING, "content": STRING},
        "additionalProperties": True,
        "description": "The observation or the note, as other answers show it.",
    },
)
_SURFACED: Final = document(
    "The same, and the matches in it, best first",
    exact(**_FIELDS, matches=listed(_MATCH)),
    {**_EXAMPLE, "matches": []},
)


@router.post("/context/assemble", responses={200: _ASSEMBLED})
async def assemble_context(bus: MemoryBus, caller: CallerOf, guards: Once, body: JsonBody[ContextBody]) -> Response:
    """Return one text within a token budget from the memories of an agent, a session and a page.

    The observations of a page need the scope `read` too.
    """
    given = body.given
    if given.get("page") is not None:
        caller.need("read")
    if given.get("record"):
        check_source(caller, given, "agent")
    context = await bus.context.assemble(event_id=guards.event_id, **given)
    return answer(_described(context))


@router.post("/context/surface", responses={200: _SURFACED})
async def surface_context(bus: MemoryBus, caller: CallerOf, guards: Once, body: JsonBody[Question]) -> Response:
    """Return the notes and open observations that are relevant to a query, best first, within a token budget.

    The observations of a page need the scope `read` too.
    """
    given = body.given
    if given.get("page", "main") is not None:
        caller.need("read")
    found: Surfaced = await bus.context.surface(given.pop("query"), event_id=guards.event_id, **given)
    matches = [
        {
            "score": match.score,
            "kind": "note" if isinstance(match.item, Note) else "observation",
            "item": document_of(match.item),
        }
        for match in found.matches
    ]
    return answer({**_described(found), "matches": matches})


def _described(context: Context) -> dict[str, Any]:
    counts.contexts += 1
    counts.context_tokens += context.tokens
    sections = [_section(part, context.left_out.get(part.name, 0)) for part in context.parts]
    return {**document_of(context), "sections": sections}


def _section(part: ContextPart, left_out: int) -> dict[str, Any]:
    items = [{"text": each.text, "tokens": estimate_tokens(each.text), **_origin(each.item)} for each in part.items]
    return {
        "name": part.name,
        "text": part.text,
        "tokens": estimate_tokens(part.text),
        "left_out": left_out,
        "items": items,
    }


def _origin(item: object) -> dict[str, Any]:
    """Return where an item comes from: an observation, a note, an item of the todo list, or a text."""
    match item:
        case Observation():
            return {
                "kind": "observation",
                "id": item.id,
                "page": item.page,
                "version": item.version,
                "position": str(item.position),
            }
        case Note():
            return {"kind": "note", "id": item.id, "version": item.version, "position": str(item.position)}
        case TodoItem():
            return {"kind": "todo", "id": item.id}
    return {"kind": "text"}
