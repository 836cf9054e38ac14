"""Recall: one ranked answer from scopes, sessions and a page."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from scratchbus.http import examples
from scratchbus.http.documents import answer, listing
from scratchbus.http.moments import When
from scratchbus.http.parameters import Absent, AnyPage, AnyScope, AnySession, Limit
from scratchbus.http.schemas import STRING, component, document, exact, listed
from scratchbus.http.server import CallerOf, MemoryBus

router = APIRouter(tags=["recall"])

Scopes = Annotated[
    list[AnyScope], Query(alias="scope", description="Their preferences and facts.", examples=[["ada/shop"]])
]
Sessions = Annotated[
    list[AnySession], Query(alias="session", description="Their notes, notepads and others.", examples=[["s1"]])
]

_REASON: Final = exact(list=STRING, rank={"type": "integer", "minimum": 1}, by=STRING)
_FIELDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("kind", "page", "id", "text"), STRING),
    "score": {"type": "number"},
    "reasons": listed(_REASON),
}
_RECALLED: Final = document(
    "The matches, best first, each with the relevant part of its text and why it was found",
    exact(items=listed(component("Recalled", exact(**_FIELDS)))),
    {
        "items": [
            {
                "kind": "observation",
                "page": "main",
                "id": examples.ID,
                "text": "A fraud ring targets customers of the shop",
                "score": 0.016721,
                "reasons": [{"list": "words", "rank": 1, "by": "fraud"}, {"list": "freshness", "rank": 1, "by": ""}],
            }
        ]
    },
)


@router.get("/recall", responses={200: _RECALLED})
async def recall(
    bus: MemoryBus,
    caller: CallerOf,
    query: Annotated[str, Query(description="The question; an empty one finds the newest.", examples=["fraud"])],
    scope: Scopes = [],  # noqa: B006 - FastAPI copies it
    session: Sessions = [],  # noqa: B006
    page: Annotated[AnyPage | Absent, Query(description="Its observations.", examples=["main"])] = None,
    at: When = None,
    limit: Limit = 10,
) -> Response:
    """Return the items relevant to a question, best first, from some scopes, sessions and a page.

    Without any of these it is the page main. The observations of a page need the scope `read` too.
    """
    if page is not None or not (scope or session):
        caller.need("read")
    found = await bus.recall(query, scopes=scope, sessions=session, page=page, at=at, limit=limit)
    return answer(listing(found))
