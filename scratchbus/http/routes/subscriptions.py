"""Durable subscriptions: declare, list, pull, ack, nack; and their dead letters."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic_core import from_json
from starlette.responses import Response

from scratchbus import AsyncBus, DeadLetter, Pulled, SubscriptionStatus, document_of, duration_ms, new_webhook_secret
from scratchbus.errors import EngineError, NotFound
from scratchbus.http import examples, patterns, problems
from scratchbus.http.bodies import Given, fields
from scratchbus.http.documents import answer, location
from scratchbus.http.parameters import Absent, AnyPage, Name, in_path
from scratchbus.http.patterns import text
from scratchbus.http.problems import Refusal
from scratchbus.http.pull import pull_for
from scratchbus.http.responses import EVENT, EVENT_KINDS
from scratchbus.http.schemas import (
    COMPONENTS,
    DATE_TIME,
    LABEL,
    POSITION,
    STRING,
    document,
    exact,
    items_of,
    link,
    listed,
    location_of,
    of_model,
    one_of,
    or_null,
    record,
    with_headers,
)
from scratchbus.http.server import ActBus, AdminBus, CallerOf, ConsumeBus, ReadBus, ServerOf
from scratchbus.http.webhooks import check_host

router = APIRouter(tags=["subscriptions"])

MAX_WAIT_MS: Final = 60_000
"""The longest that a pull waits for events."""

SubscriptionName = Annotated[str, in_path("The name of a subscription"), Name(patterns.PAGE, "router")]

_TEXT: Final = {"type": "string", "minLength": 1}
_TEXTS: Final = or_null(listed(STRING, minItems=1))


def _duration(minimum: float, maximum: float, pattern: str) -> dict[str, Any]:
    """Return the schema of a duration: seconds between these, or a text such as "30s"."""
    number = {"type": "number", "minimum": minimum, "maximum": maximum}
    return {"anyOf": [number, text(pattern)], "examples": ["30s"]}


_DONE: Final[problems.Responses] = {204: {"description": "Done"}}
_DEFINITION: Final = record(
    example={"types": ["risk_alert"], "max_attempts": 5, "retry_delay": "1s"},
    pages=or_null(listed(text(patterns.PAGE), minItems=1)),
    types=_TEXTS,
    kinds=or_null(listed(one_of(*EVENT_KINDS), minItems=1)),
    tags=or_null(listed(LABEL)),
    after=or_null(
        text(patterns.BUS_POSITION, "The position after which a new one begins; by default the log's start.")
    ),
    reset={"type": "boolean", "description": "Begin again at `after`."},
    max_attempts=or_null({"type": "integer", "minimum": 1, "description": "By default 5; with a `url`, 500."}),
    retry_delay=_duration(0, 3_153_600_000, "^[0-9]{1,3}(ms|s|m)$"),
    url={
        "type": ["string", "null"],
        "pattern": "^https?://[!-~]+$",
        "description": "The URL that its events are delivered to.",
    },
    secret={
        "type": ["string", "null"],
        "pattern": "^whsec_([A-Za-z0-9+/]{4}){8,21}$",
        "description": "The secret that signs them; by default generated, and returned only this once.",
    },
)
_STATUS: Final = of_model(SubscriptionStatus, "Subscription")
_FILTER: Final = listed(STRING)
_FILTERS: Final = record(pages=_FILTER, types=_FILTER, kinds=_FILTER, subjects=_FILTER, tags=_FILTER)
_SECRET: Final = STRING | {"description": "The generated secret; only the answer that declares the webhook has it."}
COMPONENTS["Subscription"]["properties"] |= {"filters": _FILTERS, "secret": _SECRET}
_HERE: Final = {"name": "$request.path.name"}
_SUBSCRIPTION: Final = document(
    "The subscription",
    _STATUS,
    examples.SUBSCRIPTION,
    get=link("get_subscription", "Read it.", _HERE),
    pull=link("pull_events", "Take its events.", _HERE),
    retry=link("retry_dead_letters", "Deliver its dead letters again.", _HERE),
    drop=link("drop_dead_letters", "Delete its dead letters.", _HERE),
    delete=link("delete_subscription", "Delete it.", _HERE),
)
_DECLARED: Final = with_headers(_SUBSCRIPTION, location_of("/api/v1/subscriptions/router"))
_PULL: Final = record(
    example={"max": 10, "wait": "20s", "lease": "30s"},
    max={"type": "integer", "minimum": 1, "maximum": 1000},
    wait=_duration(0, 60, "^([0-9]{1,3}ms|[1-5]?[0-9]s)$"),
    lease=_duration(1, 43_200, "^([1-9][0-9]{0,2}[sm]|[1-9]h)$"),
)
_DELIVERY: Final = exact(position=POSITION, attempt={"type": "integer"}, event=EVENT)
_PULLED: Final = document(
    "The events, oldest first; without any, `token` is null",
    exact(token=or_null(STRING), until=or_null(DATE_TIME), deliveries=listed(_DELIVERY)),
    examples.PULLED,
    ack=link(
        "ack_events",
        "They were handled.",
        _HERE,
        {"token": "$response.body#/token", "positions": ["$response.body#/deliveries/0/position"]},
    ),
)
_ACK: Final = record(
    ("token", "positions"),
    {"token": "752668246383f4f78ecd233e562eed18", "positions": ["1795386035607-1"]},
    token=_TEXT,
    positions=listed(POSITION, minItems=1),
)
_NACK: Final = record(
    ("token", "position", "reason"),
    {"token": "752668246383f4f78ecd233e562eed18", "position": "1795386035607-1", "reason": "the database is away"},
    token=_TEXT,
    position=POSITION,
    reason=_TEXT,
    delay=or_null(_duration(0, 3_153_600_000, "^[0-9]{1,3}(ms|s|m)$")),
    max_attempts=or_null({"type": "integer", "minimum": 1, "description": "At most the subscription's; 1: no more."}),
)
_POSITIONS: Final = record(example={}, positions=or_null(listed(POSITION)))
Definition = Annotated[Given, fields(_DEFINITION, required=False)]
Pull = Annotated[Given, fields(_PULL, required=False)]
SomePositions = Annotated[Given, fields(_POSITIONS, required=False)]
_COUNT: Final = document("How many", exact(count={"type": "integer"}), {"count": 2})
_ITEMS: Final = items_of("The subscriptions", _STATUS, examples.SUBSCRIPTION)
_DEAD_LETTER: Final = of_model(DeadLetter, "DeadLetter")
_DEAD_LETTERS: Final = items_of("The dead letters", _DEAD_LETTER, examples.DEAD_LETTER)


@router.get("/subscriptions", responses={200: _ITEMS})
async def list_subscriptions(bus: ReadBus) -> Response:
    """List the subscriptions, with how far each is behind."""
    return answer({"items": [_shown(each) for each in await bus.subscriptions()]})


@router.get("/subscriptions/{name}", responses={200: _SUBSCRIPTION})
async def get_subscription(bus: ReadBus, name: SubscriptionName) -> Response:
    """Return a subscription."""
    return answer(_shown(await _status_of(bus, name)))


@router.put("/subscriptions/{name}", responses=problems.answers({200: _SUBSCRIPTION, 201: _DECLARED}, 410))
async def put_subscription(
    bus: ConsumeBus, server: ServerOf, caller: CallerOf, name: SubscriptionName, given: Definition
) -> Response:
    """Declare a subscription, or replace its definition; its cursor stays where it is.

    With a `url` its events are delivered there, each signed with the `secret` as Standard Webhooks has it. This needs
    the scopes `act` and `read`; a `url` needs `admin` too, since it sends events out of the bus.
    """
    if given.get("url") is not None:
        caller.need("admin")
        check_host(given["url"], server.allow_private_webhooks)
    new_secret = new_webhook_secret() if given.get("url") is not None and given.get("secret") is None else None
    made: dict[str, str] = {}
    try:
        is_new = await bus.declare_subscription(name, **given, default_secret=new_secret)
        if new_secret is not None and await _secret_of(bus, name) == new_secret:  # else another one was stored before
            made = {"secret": new_secret}
        shown = _shown(await _status_of(bus, name))
    except EngineError as error:
        if new_secret is not None:  # a retry finds it stored, and does not show it
            error.advice += "; a secret that was not shown may be stored: send one of your own with the retry"
        raise
    headers = location("subscriptions", name) if is_new else {}
    return answer({**shown, **made}, 201 if is_new else 200, headers)


@router.delete("/subscriptions/{name}", status_code=204, responses=_DONE)
async def delete_subscription(bus: ActBus, name: SubscriptionName) -> Response:
    """Delete a subscription and its dead letters."""
    await bus.unsubscribe(name)
    return Response(status_code=204)


@router.post("/subscriptions/{name}/pull", responses=problems.answers({200: _PULLED}, 410))
async def pull_events(request: Request, bus: ConsumeBus, name: SubscriptionName, given: Pull) -> Response:
    """Take the next events under a lease, waiting for them up to `wait` (a minute at most).

    Ack each with the `token`. What is not acked when the lease ends is delivered again; until then nobody else gets
    any. Any server process takes the ack. This needs the scopes `act` and `read`.

    A batch that finds its client gone, or its token revoked, is given back at once.
    """
    if (duration_ms(given.get("wait", 0), "wait", minimum=0) or 0) > MAX_WAIT_MS:
        raise Refusal(422, "invalid-field", "wait: at most a minute; pull again", field="wait")
    pulled = await pull_for(request, bus, name, **given)
    return Response(status_code=499) if pulled is None else answer(_pulled(pulled))


@router.post("/subscriptions/{name}/ack", status_code=204, responses=_DONE)
async def ack_events(bus: ActBus, name: SubscriptionName, given: Annotated[Given, fields(_ACK)]) -> Response:
    """Ack events that were pulled: all of these, or none. Acking again changes nothing."""
    await bus.ack(name, given["token"], given["positions"])
    return Response(status_code=204)


@router.post("/subscriptions/{name}/nack", status_code=204, responses=_DONE)
async def nack_event(bus: ActBus, name: SubscriptionName, given: Annotated[Given, fields(_NACK)]) -> Response:
    """Have an event that failed delivered again, after `delay`, or set aside after the last attempt."""
    terms = {key: given.get(key) for key in ("delay", "max_attempts")}
    await bus.nack(name, given["token"], given["position"], given["reason"], **terms)
    return Response(status_code=204)


@router.get("/dead-letters", responses={200: _DEAD_LETTERS})
async def list_dead_letters(
    bus: ReadBus,
    subscription: Annotated[AnyPage | Absent, Query(description="Only those of this subscription.")] = None,
) -> Response:
    """List the events that were set aside because handling them failed again and again."""
    return answer({"items": [each.model_dump(mode="json") for each in await bus.dead_letters(subscription)]})


@router.post("/subscriptions/{name}/dead-letters/retry", responses=problems.answers({200: _COUNT}, 410))
async def retry_dead_letters(bus: AdminBus, name: SubscriptionName, given: SomePositions) -> Response:
    """Deliver dead letters again, all or those at these positions."""
    return answer({"count": await bus.retry_dead_letters(name, given.get("positions"))})


@router.post("/subscriptions/{name}/dead-letters/drop", responses={200: _COUNT})
async def drop_dead_letters(bus: AdminBus, name: SubscriptionName, given: SomePositions) -> Response:
    """Delete dead letters, all or those at these positions."""
    return answer({"count": await bus.drop_dead_letters(name, given.get("positions"))})


async def _status_of(bus: AsyncBus, name: str) -> SubscriptionStatus:
    for each in await bus.subscriptions():
        if each.name == name:
            return each
    raise Refusal(404, "not-found", f"there is no subscription {name!r}; PUT it first")


def _shown(status: SubscriptionStatus) -> dict[str, Any]:
    return {**status.model_dump(mode="json"), "filters": from_json(status.filters)}


def _pulled(pulled: Pulled) -> dict[str, Any]:
    return {
        "token": pulled.token or None,
        "until": pulled.until,
        "deliveries": [
            {"position": str(each.position), "attempt": each.attempt, "event": document_of(each.event)}
            for each in pulled.deliveries
        ],
    }


async def _secret_of(bus: AsyncBus, name: str) -> str | None:
    try:
        return (await bus.webhook(name)).secret
    except NotFound:  # someone has removed it since
        return None
