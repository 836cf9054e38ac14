"""What led to an observation and what followed from it: history, trace, consequences, exposure, evidence, diff."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from scratchbus import document_of
from scratchbus.http import problems
from scratchbus.http.documents import answer, listing
from scratchbus.http.moments import AnyMoment, At, ReadMoment, Silent
from scratchbus.http.parameters import Absent, Id, Label, PageName
from scratchbus.http.responses import CONSEQUENCES, DIFFERENCES, EVENTS, EVIDENCE, EXPOSURE, TRACE
from scratchbus.http.routes.observations import ONE
from scratchbus.http.server import ReadBus

router = APIRouter(tags=["history"])

Action = Annotated[Label, Query(description="The linked action.", examples=["goal-17"])]
Start = Annotated[
    AnyMoment, Query(alias="from", description="A time or a position.", examples=["2026-11-22T00:00:00Z"])
]
End = Annotated[AnyMoment | Absent, Query(alias="to", description="A time or a position; default: now.")]


@router.get(ONE + "/history", responses={200: EVENTS})
async def get_history(bus: ReadBus, page: PageName, id: Id, moment: At) -> Response:
    """Return its events, oldest first, also after it has left the page."""
    reads = await moment.page(bus, page)
    return answer(listing(await reads.history(id)))


@router.get(ONE + "/consequences", responses={200: CONSEQUENCES})
async def get_consequences(bus: ReadBus, page: PageName, id: Id, moment: At) -> Response:
    """Return what rests on it, actions linked to that, and events it caused."""
    found = await (await moment.page(bus, page)).consequences(id)
    observations = {each: document_of(observation) for each, observation in found.observations.items()}
    events = [document_of(each) for each in found.events]
    return answer(found.model_dump(mode="json") | {"observations": observations, "events": events})


@router.get(ONE + "/exposure", responses={200: EXPOSURE})
async def get_exposure(bus: ReadBus, page: PageName, id: Id, moment: At) -> Response:
    """Return the agents that were shown it, when and in which version, and the actions they linked since."""
    found = await (await moment.page(bus, page)).exposure(id)
    return answer(found.model_dump(mode="json"))


@router.get(ONE + "/evidence", responses={200: EVIDENCE})
async def get_evidence(bus: ReadBus, page: PageName, id: Id, moment: At) -> Response:
    """Return its direct and indirect evidence, also from other pages."""
    found = await (await moment.page(bus, page)).evidence(id)
    return answer(listing(found.values()))


@router.get("/pages/{page}/trace", responses={200: TRACE})
async def trace_action(bus: ReadBus, page: PageName, action: Action, moment: At) -> Response:
    """Return what led to an action: the observations linked to it, and the evidence they rest on."""
    return answer(document_of(await (await moment.page(bus, page)).trace(action)))


@router.get("/pages/{page}/diff", responses=problems.answers({200: DIFFERENCES}, 410))
async def diff_page(
    bus: ReadBus,
    page: PageName,
    start: Start,
    end: End = None,
    without_source: Silent = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """Return how a page at one moment differs from itself at another, or from one without some sources."""
    before = await ReadMoment(at=start).past(bus, page)
    after = await ReadMoment(at=end, without_source=without_source).past(bus, page)
    return answer(listing(await before.diff(after)))
