"""Changes of an observation's life: review, resolve, archive, reopen, refute, claim, release, link, erase."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from scratchbus import document_of
from scratchbus.http import problems
from scratchbus.http.documents import answer, check_source, observation_answer
from scratchbus.http.observation_bodies import (
    ClaimNext,
    Erasure,
    Ids,
    NewClaim,
    NewLink,
    Refutation,
    Release,
    Reopening,
    Resolution,
    Why,
)
from scratchbus.http.parameters import Guarded, Id, Once, PageName
from scratchbus.http.responses import CLAIM_ANSWER, OBSERVATION, TOMBSTONE
from scratchbus.http.routes.observations import ONE
from scratchbus.http.server import ActBus, AdminBus, CallerOf

router = APIRouter(tags=["changes"])

_CHANGED: Final[problems.Responses] = {200: OBSERVATION}


@router.post(ONE + "/review", responses=_CHANGED)
async def review_observation(bus: ActBus, page: PageName, id: Id, guards: Guarded, given: Why) -> Response:
    """Send it to review: it stays open, but is not active."""
    return observation_answer(await bus.page(page).review(id, **guards.as_keywords(), **given))


@router.post(ONE + "/resolve", responses=_CHANGED)
async def resolve_observation(bus: ActBus, page: PageName, id: Id, guards: Guarded, given: Resolution) -> Response:
    """Close it, because it has been dealt with; `action` says by what, as `link` records it."""
    return observation_answer(await bus.page(page).resolve(id, **guards.as_keywords(), **given))


@router.post(ONE + "/archive", responses=_CHANGED)
async def archive_observation(bus: ActBus, page: PageName, id: Id, guards: Guarded, given: Why) -> Response:
    """Archive it for good."""
    return observation_answer(await bus.page(page).archive(id, **guards.as_keywords(), **given))


@router.post(ONE + "/reopen", responses=_CHANGED)
async def reopen_observation(bus: ActBus, page: PageName, id: Id, guards: Guarded, given: Reopening) -> Response:
    """Make it active again for `ttl`, by default for as long as it was given last."""
    return observation_answer(await bus.page(page).reopen(id, **guards.as_keywords(), **given))


@router.post(ONE + "/refute", responses=_CHANGED)
async def refute_observation(bus: ActBus, page: PageName, id: Id, once: Once, given: Refutation) -> Response:
    """Archive it as untrue; open observations that rest on it go to review."""
    return observation_answer(await bus.page(page).refute(id, event_id=once.event_id, **given))


@router.post(ONE + "/claim", responses={200: CLAIM_ANSWER})
async def claim_observation(
    bus: ActBus, caller: CallerOf, page: PageName, id: Id, once: Once, given: NewClaim
) -> Response:
    """Claim it for a while; with `fence`, renew one's own claim."""
    check_source(caller, given, "by")
    claim = await bus.page(page).claim(id, event_id=once.event_id, **given)
    return answer(claim.model_dump(mode="json"))


@router.post(ONE + "/release", responses=_CHANGED)
async def release_observation(
    bus: ActBus, caller: CallerOf, page: PageName, id: Id, once: Once, given: Release
) -> Response:
    """Release a claim."""
    check_source(caller, given, "by")
    return observation_answer(await bus.page(page).release(id, event_id=once.event_id, **given))


@router.post(ONE + "/link", responses=_CHANGED)
async def link_observation(bus: ActBus, page: PageName, id: Id, once: Once, given: NewLink) -> Response:
    """Record an action taken because of it; `trace` finds the observation by this action."""
    return observation_answer(await bus.page(page).link(id, event_id=once.event_id, **given))


@router.post(ONE + "/erase", responses={200: TOMBSTONE})
async def erase_observation(bus: AdminBus, page: PageName, id: Id, once: Once, given: Erasure) -> Response:
    """Erase its events from the log, and everything derived from them; the answer is the tombstone."""
    erased = await bus.page(page).erase(id, event_id=once.event_id, **given)
    return answer(document_of(erased))


@router.post(
    "/pages/{page}/claim-next",
    responses={200: OBSERVATION, 204: {"description": "There is nothing to claim"}},
)
async def claim_next(bus: ActBus, caller: CallerOf, page: PageName, once: Once, given: ClaimNext) -> Response:
    """Claim the unclaimed active observation of the highest priority, newest first."""
    check_source(caller, given, "by")
    job = await bus.page(page).claim_next(event_id=once.event_id, **given)
    return Response(status_code=204) if job is None else observation_answer(job.observation)


@router.post(
    "/pages/{page}/clear-resolved",
    status_code=204,
    responses={204: {"description": "They are off the page"}},
)
async def clear_resolved(bus: ActBus, page: PageName, once: Once, given: Ids) -> Response:
    """Take resolved observations off the page, all or none; their history stays."""
    await bus.page(page).clear_resolved(given["ids"], event_id=once.event_id)
    return Response(status_code=204)
