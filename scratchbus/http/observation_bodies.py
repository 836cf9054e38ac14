"""The bodies of requests about observations, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Annotated, Final

from scratchbus.http import examples, patterns
from scratchbus.http.bodies import Given, fields
from scratchbus.http.patterns import MAX_SAFE_INTEGER, text
from scratchbus.http.schemas import (
    DURATION,
    ID,
    LABEL,
    LIFE,
    OBJECT,
    SOURCE,
    STRING,
    TIME,
    TYPE,
    Schema,
    any_of,
    component,
    exact,
    listed,
    or_null,
    record,
)

EVENT_ID: Final = text(patterns.EVENT_ID, "An id of yours for the addition, which makes a retry safe.")

_CONTENT: Final = text(
    patterns.NOT_BLANK, "At most 65,536 bytes of UTF-8; types may allow less.", minLength=1, maxLength=65_536
)
_CONFIDENCE: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 1}
_TAGS: Final = listed(LABEL, description="Duplicates are ignored; at most 32, unless the type sets another limit.")
_TRIGGER: Final = component(
    "Trigger",
    {
        "description": "The event that makes the reminder due, by its fields.",
        **record(type=LABEL, status=LABEL, tags=or_null(_TAGS)),
        "minProperties": 1,
    },
)
_BLOCKERS: Final = listed(
    ID, maxItems=100, description="Observations of the page; while one of them is open, this one is not active."
)
_EVERY: Final[Schema] = {"type": "string", "pattern": patterns.EVERY}
_FIELDS: Final[dict[str, Schema]] = {
    "type": TYPE,
    "content": _CONTENT,
    "source": or_null(SOURCE) | {"description": "Yours unless your token may name others."},
    "owner": or_null(LABEL),
    "status": or_null(LABEL) | {"description": "The initial status, one that the type allows."},
    "confidence": or_null(_CONFIDENCE),
    "context": or_null(OBJECT),
    "tags": or_null(_TAGS),
    "ttl": or_null(LIFE) | {"description": "The time to live; by default that of its type."},
    "expires_at": or_null(TIME) | {"description": "When it expires; not together with `ttl`."},
    "metadata": or_null(OBJECT),
    "dedupe_key": {
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": 512,
        "description": "If an open observation has the same key, it is counted again instead.",
    },
    "times": {
        "type": "integer",
        "minimum": 1,
        "maximum": 1_000_000_000,
        "description": "The number of sightings to count.",
    },
    "evidence": or_null(listed(ID, maxItems=1_000)) | {"description": "The observations that support it."},
    "remind_at": or_null(TIME),
    "remind_on": or_null(_TRIGGER),
    "blocked_by": or_null(_BLOCKERS),
    "not_before": or_null(TIME) | {"description": "When it becomes active."},
    "every": {
        "anyOf": [_EVERY, {"type": "null"}],
        "description": "How often it recurs: an interval, or a cron line in UTC.",
        "examples": ["1h", "0 3 * * mon-fri"],
    },
}
NEW_FIELDS: Final = tuple(_FIELDS)
"""What may be said of a new observation."""

_ONE_END: Final = any_of({"properties": {"ttl": {"type": "null"}}}, {"properties": {"expires_at": {"type": "null"}}})
_NEEDED: Final = ("type", "content")

NEW: Final = component(
    "NewObservation", {**record(_NEEDED, **_FIELDS), **_ONE_END, "examples": [examples.NEW_OBSERVATION]}
)
_ITEM: Final = component("NewItem", {**record(_NEEDED, **_FIELDS, event_id=or_null(EVENT_ID)), **_ONE_END})
BATCH: Final = component(
    "NewObservations",
    exact(
        observations=listed(_ITEM, maxItems=1_000, description="Each with an `event_id` of its own, or none of them.")
    ),
)

_FENCE: Final[Schema] = {
    "type": ["integer", "null"],
    "minimum": 1,
    "maximum": MAX_SAFE_INTEGER,
    "description": "The fence of your claim.",
}
_REASON_TEXT: Final = text(patterns.NOT_BLANK, "At most 4,096 bytes.", minLength=1, maxLength=4_096)
_REASON: Final = or_null(_REASON_TEXT)
_BY: Final = or_null(SOURCE) | {"description": "The holder of the claim; you, unless your token may name others."}
_CHANGES: Final[dict[str, Schema]] = {
    "content": _CONTENT,
    "status": LABEL,
    "reason": _REASON | {"description": "Why the status changes."},
    "owner": or_null(LABEL),
    "confidence": _CONFIDENCE,
    "context": or_null(OBJECT),
    "tags": or_null(_TAGS),
    "metadata": or_null(OBJECT),
    "expires_at": or_null(TIME),
    "blocked_by": or_null(_BLOCKERS),
    "not_before": or_null(TIME) | {"description": "When it becomes active, or recurs next; null: now."},
    "every": _EVERY | {"description": "How often it recurs."},
    "remind_at": or_null(TIME),
}
_UPDATE_OPTIONS: Final[dict[str, Schema]] = {"release": {"type": "boolean", "description": "Whether your claim ends."}}
PATCH: Final = component(
    "ObservationPatch",
    {
        **record((), None, **_CHANGES, **_UPDATE_OPTIONS, fence=_FENCE),
        "description": "The fields to replace, at least one, or `release`.",
        **any_of(*({"required": [name]} for name in (*_CHANGES, *_UPDATE_OPTIONS))),
        "dependentRequired": {"reason": ["status"]},
    },
)
_WHY: Final = component("Reason", record(reason=_REASON, fence=_FENCE))
_RESOLUTION: Final = component("Resolution", record(reason=_REASON, action=or_null(LABEL), fence=_FENCE))
_REFUTATION: Final = component("Refutation", record(("reason",), reason=_REASON_TEXT, fence=_FENCE))
_ERASURE: Final = component("Erasure", exact(reason=_REASON_TEXT))
_REOPENING: Final = component("Reopening", record(reason=_REASON, ttl=or_null(LIFE), fence=_FENCE))
_CLAIM: Final = component("NewClaim", record(ttl=DURATION, by=_BY, fence=_FENCE))
_RELEASE: Final = component("Release", record(by=_BY, fence=_FENCE))
_LINK: Final = component("NewLink", record(("action",), action=LABEL, fence=_FENCE))
_TYPES: Final = or_null(listed(TYPE, minItems=1))
_NEXT: Final = component("ClaimNext", record(types=_TYPES, tags=or_null(listed(LABEL)), ttl=DURATION, by=_BY))
_IDS: Final = component("Ids", exact(ids=listed(ID, maxItems=1_000)))
_LOGIN: Final = component("Login", exact(token=STRING))

Why = Annotated[Given, fields(_WHY, required=False, example={"reason": "the sensor was replaced"})]
Resolution = Annotated[
    Given, fields(_RESOLUTION, required=False, example={"reason": "card blocked", "action": "freeze-card-4711"})
]
Refutation = Annotated[Given, fields(_REFUTATION, example={"reason": "it was a test"})]
Erasure = Annotated[Given, fields(_ERASURE, example={"reason": "a customer asked for it"})]
Reopening = Annotated[Given, fields(_REOPENING, required=False, example={"ttl": "1h"})]
NewClaim = Annotated[Given, fields(_CLAIM, required=False, example={"ttl": "2m"})]
Release = Annotated[Given, fields(_RELEASE, required=False, example={})]
NewLink = Annotated[Given, fields(_LINK, example={"action": "goal-17"})]
ClaimNext = Annotated[Given, fields(_NEXT, required=False, example={"types": ["risk_alert"], "ttl": "1m"})]
Ids = Annotated[Given, fields(_IDS, example={"ids": [examples.ID]})]
Login = Annotated[Given, fields(_LOGIN, example={"token": "sbt_example"})]
