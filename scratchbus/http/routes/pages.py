"""Pages: which there are, and how many observations each has."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from scratchbus.http.documents import answer
from scratchbus.http.moments import At, When
from scratchbus.http.parameters import PageName
from scratchbus.http.schemas import COUNT, FLAG, STRING, document, exact, items_of
from scratchbus.http.server import ReadBus

router = APIRouter(tags=["pages"])

_COUNTS: Final = {"type": "object", "additionalProperties": COUNT}
_PAGE: Final = exact(name=STRING, open=COUNT, claimed={"type": ["integer", "null"]})
_PAGES: Final = items_of(
    "The pages; `claimed` is null for one with too many open observations to count their claims",
    _PAGE,
    {"name": "main", "open": 17, "claimed": 2},
    {"name": "session:s1", "open": 0, "claimed": 0},
)
_COUNTED: Final = document(
    "The counts; `is_all` is false if only the newest `total` were counted",
    exact(
        name=STRING,
        total=COUNT,
        is_all=FLAG,
        statuses=_COUNTS,
        types=_COUNTS,
    ),
    {
        "name": "main",
        "total": 19,
        "is_all": True,
        "statuses": {"active": 17, "resolved": 2},
        "types": {"risk_alert": 4, "observation": 15},
    },
)


@router.get("/pages", responses={200: _PAGES})
async def list_pages(bus: ReadBus, at: When = None) -> Response:
    """List all pages, those with the most open observations first; with `at`, those that there were."""
    found = await bus.pages(at)
    return answer({"items": [{"name": each.page, "open": each.open, "claimed": each.claimed} for each in found]})


@router.get("/pages/{page}", responses={200: _COUNTED})
async def count_page(bus: ReadBus, page: PageName, moment: At) -> Response:
    """Count the observations of a page by status and by type."""
    reads = await moment.page(bus, page)
    counts = (await reads.counts()).model_dump()
    return answer({"name": counts.pop("page"), **counts})
