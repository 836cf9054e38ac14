"""Changes of an observation's life: review, resolve, archive, reopen, refute, claim, release, link, erase."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from scratchbus import Observation, document_of
from scratchbus.http import examples, problems
from scratchbus.http.documents import answer, body_of, check_lists, check_source, fields_of, observation_answer
from scratchbus.http.observation_bodies import ACTION, CLAIM, ERASURE, IDS, NEXT, REASON, REFUTATION, RELEASE, REOPEN
from scratchbus.http.parameters import Guarded, Id, Once, PageName
from scratchbus.http.responses import CLAIM_ANSWER, OBSERVATION, TOMBSTONE
from scratchbus.http.routes.observations import ONE
from scratchbus.http.schemas import body
from scratchbus.http.server import ActBus, AdminBus, CallerOf

router = APIRouter(tags=["changes"])

_CHANGED: Final[problems.Responses] = {200: OBSERVATION}
_WHY: Final = body(REASON, required=False, example={"reason": "the sensor was replaced"})


@router.post(ONE + "/review", responses=_CHANGED, openapi_extra=_WHY)
async def review_observation(request: Request, bus: ActBus, page: PageName, id: Id, guards: Guarded) -> Response:
    """Send it to review: it stays open, but is not active."""
    given = fields_of(await body_of(request), "reason", "fence")
    return await _changed(bus.page(page).review(id, **guards.as_keywords(), **given))


@router.post(ONE + "/resolve", responses=_CHANGED, openapi_extra=_WHY)
async def resolve_observation(request: Request, bus: ActBus, page: PageName, id: Id, guards: Guarded) -> Response:
    """Close it, because it has been dealt with."""
    given = fields_of(await body_of(request), "reason", "fence")
    return await _changed(bus.page(page).resolve(id, **guards.as_keywords(), **given))


@router.post(ONE + "/archive", responses=_CHANGED, openapi_extra=_WHY)
async def archive_observation(request: Request, bus: ActBus, page: PageName, id: Id, guards: Guarded) -> Response:
    """Archive it for good."""
    given = fields_of(await body_of(request), "reason", "fence")
    return await _changed(bus.page(page).archive(id, **guards.as_keywords(), **given))


@router.post(ONE + "/reopen", responses=_CHANGED, openapi_extra=body(REOPEN, required=False, example={"ttl": "1h"}))
async def reopen_observation(request: Request, bus: ActBus, page: PageName, id: Id, guards: Guarded) -> Response:
    """Make it active again for `ttl`, by default for as long as it was given last."""
    given = fields_of(await body_of(request), "reason", "ttl", "fence")
    return await _changed(bus.page(page).reopen(id, **guards.as_keywords(), **given))


@router.post(ONE + "/refute", responses=_CHANGED, openapi_extra=body(REFUTATION, example={"reason": "it was a test"}))
async def refute_observation(request: Request, bus: ActBus, page: PageName, id: Id, once: Once) -> Response:
    """Archive it as untrue; open observations that rest on it go to review."""
    given = fields_of(await body_of(request), "reason", "fence", required=("reason",))
    return await _changed(bus.page(page).refute(id, event_id=once.event_id, **given))


@router.post(
    ONE + "/claim", responses={200: CLAIM_ANSWER}, openapi_extra=body(CLAIM, required=False, example={"ttl": "2m"})
)
async def claim_observation(
    request: Request, bus: ActBus, caller: CallerOf, page: PageName, id: Id, once: Once
) -> Response:
    """Claim it for a while; with `fence`, renew one's own claim."""
    given = fields_of(await body_of(request), "ttl", "by", "fence")
    check_source(caller, given, "by")
    claim = await bus.page(page).claim(id, event_id=once.event_id, **given)
    return answer(claim.model_dump(mode="json"))


@router.post(ONE + "/release", responses=_CHANGED, openapi_extra=body(RELEASE, required=False, example={}))
async def release_observation(
    request: Request, bus: ActBus, caller: CallerOf, page: PageName, id: Id, once: Once
) -> Response:
    """Release a claim."""
    given = fields_of(await body_of(request), "by", "fence")
    check_source(caller, given, "by")
    return await _changed(bus.page(page).release(id, event_id=once.event_id, **given))


@router.post(ONE + "/link", responses=_CHANGED, openapi_extra=body(ACTION, example={"action": "goal-17"}))
async def link_observation(request: Request, bus: ActBus, page: PageName, id: Id, once: Once) -> Response:
    """Record an action taken because of it; `trace` finds the observation by this action."""
    given = fields_of(await body_of(request), "action", "fence", required=("action",))
    return await _changed(bus.page(page).link(id, event_id=once.event_id, **given))


@router.post(
    ONE + "/erase",
    responses={200: TOMBSTONE},
    openapi_extra=body(ERASURE, example={"reason": "a customer asked for it"}),
)
async def erase_observation(request: Request, bus: AdminBus, page: PageName, id: Id, once: Once) -> Response:
    """Erase its events from the log, and everything derived from them; the answer is the tombstone."""
    given = fields_of(await body_of(request), "reason", required=("reason",))
    erased = await bus.page(page).erase(id, event_id=once.event_id, **given)
    return answer(document_of(erased))


@router.post(
    "/pages/{page}/claim-next",
    responses={200: OBSERVATION, 204: {"description": "There is nothing to claim"}},
    openapi_extra=body(NEXT, required=False, example={"types": ["risk_alert"], "ttl": "1m"}),
)
async def claim_next(request: Request, bus: ActBus, caller: CallerOf, page: PageName, once: Once) -> Response:
    """Claim the unclaimed active observation of the highest priority, newest first."""
    given = fields_of(await body_of(request), "types", "tags", "ttl", "by")
    check_lists(given, "types", "tags")
    check_source(caller, given, "by")
    job = await bus.page(page).claim_next(event_id=once.event_id, **given)
    return Response(status_code=204) if job is None else observation_answer(job.observation)


@router.post(
    "/pages/{page}/clear-resolved",
    status_code=204,
    responses={204: {"description": "They are off the page"}},
    openapi_extra=body(IDS, example={"ids": [examples.ID]}),
)
async def clear_resolved(request: Request, bus: ActBus, page: PageName, once: Once) -> Response:
    """Take resolved observations off the page, all or none; their history stays."""
    given = fields_of(await body_of(request), "ids", required=("ids",))
    check_lists(given, "ids")
    await bus.page(page).clear_resolved(given["ids"], event_id=once.event_id)
    return Response(status_code=204)


async def _changed(change: Awaitable[Observation]) -> Response:
    return observation_answer(await change)
