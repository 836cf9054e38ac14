"""Observations: add, get, list, active, update."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from scratchbus import AsyncPage, NewObservation, Observation
from scratchbus.errors import ScratchbusError
from scratchbus.http import examples, problems
from scratchbus.http.documents import (
    answer,
    body_of,
    check_source,
    check_times,
    fields_of,
    listing,
    observation_answer,
    paged,
)
from scratchbus.http.moments import At
from scratchbus.http.observation_bodies import BATCH, NEW, NEW_FIELDS, PATCH
from scratchbus.http.parameters import (
    AnyLimit,
    Cursor,
    Guarded,
    Id,
    JsonObject,
    Label,
    Least,
    Limit,
    Once,
    Owner,
    PageName,
    Part,
    Since,
    SourceName,
    TypeName,
    object_of,
)
from scratchbus.http.responses import ACTIVE, ADDED, ALL_ADDED, OBSERVATION, OBSERVATIONS, READY, REPEATED
from scratchbus.http.schemas import body
from scratchbus.http.server import ActBus, CallerOf, PublishBus, ReadBus

router = APIRouter(tags=["observations"])
PATH = "/pages/{page}/observations"
ONE = PATH + "/{id:ulid}"

MAX_COUNTED = 1_000
"""The most matches that `total` counts."""

TIMES = ("expires_at", "remind_at", "not_before")
"""The fields of a body that are times."""


@router.get(PATH, responses={200: OBSERVATIONS})
async def list_observations(
    request: Request,
    bus: ReadBus,
    page: PageName,
    moment: At,
    type: TypeName = None,
    status: Annotated[list[Label], Query(description="One of these.", examples=[["active"]])] = [],  # noqa: B006
    owner: Owner = None,
    source: SourceName = None,
    tag: Annotated[list[Label], Query(description="All of these.", examples=[["fraud"]])] = [],  # noqa: B006
    text: Part = None,
    context: JsonObject = None,
    metadata: JsonObject = None,
    confidence: Least = None,
    since: Since = None,
    limit: Limit = 100,
    after: Cursor = None,
    count: Annotated[bool, Query(description="Whether to count all that match, as `total`.")] = False,
) -> Response:
    """List the observations that match all filters, newest first."""
    reads = await moment.page(bus, page)
    filters: dict[str, Any] = {"type": type, "status": status or None, "owner": owner, "source": source}
    filters |= {
        "tags": tag or None,
        "text": text,
        "context": object_of("context", context),
        "metadata": object_of("metadata", metadata),
        "confidence": confidence,
        "since": since,
    }
    given = {name: value for name, value in filters.items() if value is not None}
    found = await reads.list(given, limit=limit + 1, after=after)
    next_after = found[limit - 1].id if len(found) > limit else None
    total = {"total": await reads.count(given, limit=MAX_COUNTED)} if count else {}
    return paged(request, found[:limit], next_after, **total)


@router.post(
    PATH,
    status_code=201,
    responses={201: ADDED, 200: REPEATED},
    openapi_extra=body(NEW, example=examples.NEW_OBSERVATION),
)
async def add_observation(request: Request, bus: PublishBus, caller: CallerOf, page: PageName, once: Once) -> Response:
    """Add an observation; 200 if an open one has the same `dedupe_key`, which is then counted again."""
    given = await body_of(request)
    check_source(caller, given)
    check_times(given, *TIMES)
    fields_of(given, *NEW_FIELDS)
    added = await bus.page(page).add(given if once.event_id is None else {**given, "event_id": once.event_id})
    displaced = await _displaced(bus.page(page), added)
    return observation_answer(added, 201 if added.version == 1 else 200, displaced=displaced)


@router.post(
    PATH + "/batch",
    status_code=201,
    responses={201: ALL_ADDED},
    openapi_extra=body(BATCH, example={"observations": [examples.NEW_OBSERVATION]}),
)
async def add_observations(request: Request, bus: PublishBus, caller: CallerOf, page: PageName, once: Once) -> Response:
    """Add up to 1,000 observations, all or none."""
    given = fields_of(await body_of(request), "observations", required=("observations",))["observations"]
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise problems.Refusal(422, "invalid-field", "observations: write a list of objects", field="observations")
    for each in given:
        check_source(caller, each)
        check_times(each, *TIMES)
    added = await bus.page(page).add_many([NewObservation(**each) for each in given], event_id=once.event_id)
    return answer({**listing(added), "displaced": await _displaced(bus.page(page), added)}, 201)


async def _displaced(page: AsyncPage, added: Observation | list[Observation]) -> list[str] | None:
    """Return the ids of what made room for observations; None if that cannot be read."""
    with suppress(ScratchbusError):  # they are added all the same
        return [each.id for each in await page.displaced(added)]
    return None


@router.get("/pages/{page}/active", responses={200: ACTIVE})
async def list_active(bus: ReadBus, page: PageName, moment: At, limit: AnyLimit = None) -> Response:
    """List the active observations by priority, then newest first."""
    reads = await moment.page(bus, page)
    return answer(listing(await reads.active(limit)))


@router.get("/pages/{page}/ready", responses={200: READY})
async def list_ready(bus: ReadBus, page: PageName, limit: AnyLimit = None) -> Response:
    """List what can be claimed now: active, not blocked, and held by no one, in the order of `claim-next`."""
    return answer(listing(await bus.page(page).ready(limit)))


@router.get(ONE, responses={200: OBSERVATION})
async def get_observation(bus: ReadBus, page: PageName, id: Id, moment: At) -> Response:
    """Return an observation; its version is the ETag."""
    reads = await moment.page(bus, page)
    found = await reads.get(id)
    if found is None:
        raise problems.Refusal(
            404, "not-found", f"no observation {id} on page {page!r}; its history may still be there"
        )
    return observation_answer(found)


@router.patch(ONE, responses={200: OBSERVATION}, openapi_extra=body(PATCH, example={"confidence": 0.4}))
async def update_observation(request: Request, bus: ActBus, page: PageName, id: Id, guards: Guarded) -> Response:
    """Replace fields, among them when it becomes active or recurs."""
    given: Any = await body_of(request)
    check_times(given, *TIMES)
    fence, release = given.pop("fence", None), given.pop("release", False)
    changed = await bus.page(page).update(id, given, fence=fence, release=release, **guards.as_keywords())
    return observation_answer(changed)
