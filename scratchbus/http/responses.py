"""The answers about observations for the OpenAPI document, with links from each to the next operations."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter

import scratchbus
from scratchbus.http import examples
from scratchbus.http.schemas import (
    COMPONENTS,
    DATE_TIME,
    FLAG,
    ID,
    POSITION,
    REFERENCE,
    STRING,
    Schema,
    complete,
    component,
    document,
    document_schema,
    header,
    leave_out_nulls,
    link,
    listed,
    location_of,
    of_model,
    one_of,
    or_null,
    without_null,
)

_DISPLACED: Final = or_null(
    listed(ID, description="The observations displaced to make room; null if that could not be read.")
)
_LEFT_OUT: Final = {
    "status_class": 'Left out if it is "open".',
    "dedupe_key": "An open observation with the same key is counted again instead of added.",
    "evidence": "The observations that support it; left out without any.",
    "remind_at": "When its reminder is due.",
    "remind_on": "The event that makes its reminder due, by its fields.",
    "blocked_by": "While one of these observations is open, this one is not active; left out without any.",
    "not_before": "When it becomes active, or recurs next.",
    "every": "How often it recurs.",
    "damaged": "Whether events about it are lost; left out if not.",
    "occurrences": "How often it was seen; left out if once.",
    "links": "The actions taken because of it; left out without any.",
    "claim": "Its claim; left out if nobody holds one.",
    "reason": "Why it has its status.",
    "reason_code": "What kind of change led to its status.",
    "chain": "The ids from the refuted observation to its evidence; left out without any.",
    "seen_by": "The sessions and agents that had seen it when it was refuted; left out without any.",
    "followed": "The actions they had taken since; left out without any.",
    "archive_at": "When it is archived.",
    "due_at": "When its reminder fell due.",
    "fence": "The fence of its last claim; left out if it was never claimed.",
    "attempts": "How often it was picked as work since its last change of status; left out if never.",
    "added": "The position of the event that added it; left out if that is `position`.",
}
"""What the fields mean that an observation leaves out if they say nothing."""


def _observation() -> Schema:
    """Return the schema of an observation in answers: the specified fields, and those the bus adds.

    Those that say nothing beyond their default are left out.
    """
    schema = document_schema(TypeAdapter(scratchbus.Observation).json_schema(mode="serialization"))
    definitions = schema.pop("$defs")
    claim = component("Claim", complete(document_schema(definitions["Claim"])))
    properties = schema["properties"]
    properties |= {"claim": claim, "id": ID, "evidence": listed(ID), "blocked_by": listed(ID), "displaced": _DISPLACED}
    properties |= {"position": POSITION, "added": POSITION, "remind_on": _TRIGGER}
    always = ("id", "type", "content", "source", "owner", "status", "confidence", "context", "tags", "created_at")
    schema["required"] = [*always, "updated_at", "expires_at", "metadata", "page", "version", "position", "priority"]
    for name, meaning in _LEFT_OUT.items():
        properties[name] = without_null(properties[name]) | {"description": meaning}
    return schema


def _shape(**properties: Schema) -> Schema:
    """Return the schema of an object that has all of these."""
    return {"type": "object", "required": [*properties], "properties": properties}


def _list(description: str, items: Schema, example: Any, **links: Any) -> dict[str, Any]:
    """Return the response of an operation whose document is a list of `items`; the links are as in `document`."""
    return document(description, _shape(items=listed(items)), {"items": [example]}, **links)


_TRIGGER: Final = component(
    "StoredTrigger",
    {
        "type": "object",
        "description": "The event that makes a reminder due, by its fields.",
        "properties": {"type": STRING, "status": STRING, "tags": listed(STRING)},
    },
)
KEPT: Final = component("Observation", _observation())
_ADDED: Final = component("AddedObservation", {"allOf": [KEPT, _shape(displaced=_DISPLACED)]})


def _event() -> Schema:
    """Return the schema of an event in answers: one for each kind, without the fields that are None."""
    union = TypeAdapter(scratchbus.AnyEvent).json_schema(mode="serialization", ref_template=REFERENCE + "{model}")
    names = {}
    for name, schema in union["$defs"].items():
        found = document_schema(schema)
        if "kind" in found["properties"]:
            found["properties"]["position"] = POSITION
            if "remind_on" in found["properties"]:
                found["properties"]["remind_on"] = or_null(_TRIGGER)
            names[found["properties"]["kind"]["const"]] = component(f"{name}Event", leave_out_nulls(found))
        else:
            component(name, complete(found) if name == "TodoItem" else found)
    mapping = {kind: reference["$ref"] for kind, reference in names.items()}
    return {"oneOf": [*names.values()], "discriminator": {"propertyName": "kind", "mapping": mapping}}


EVENT: Final = component("Event", _event())
EVENT_KINDS: Final = tuple(COMPONENTS["Event"]["discriminator"]["mapping"])

ETAG: Final = header("The version, for `If-Match`.", '"1"', required=True, pattern='^"[1-9][0-9]*"$')
_LOCATION: Final = location_of(f"/api/v1/pages/main/observations/{examples.ID}")
LINK: Final = header("The next page, unless this is the last.", '</api/v1/…&after=…>; rel="next"')
_PAGE: Final = {"page": "$request.path.page"}
_HERE: Final = {"page": "$response.body#/page", "id": "$response.body#/id"}


_LINKS: Final = {
    "get": link("get_observation", "Read it.", _HERE),
    "update": link("update_observation", "Change it.", _HERE | {"header.If-Match": "$response.header.ETag"}),
    "history": link("get_history", "Its events.", _HERE),
    "consequences": link("get_consequences", "Its consequences.", _HERE),
    "exposure": link("get_exposure", "Who saw it.", _HERE),
    "evidence": link("get_evidence", "Its evidence.", _HERE),
    "claim": link("claim_observation", "Claim it.", _HERE),
    "release": link("release_observation", "Release the claim.", _HERE),
    "review": link("review_observation", "Send it to review.", _HERE),
    "resolve": link("resolve_observation", "Close it.", _HERE),
    "reopen": link("reopen_observation", "Make it active again.", _HERE),
    "archive": link("archive_observation", "Archive it.", _HERE),
    "refute": link("refute_observation", "Archive it as untrue.", _HERE),
    "link": link("link_observation", "Record an action taken because of it.", _HERE),
    "erase": link("erase_observation", "Erase it.", _HERE),
}
_FIRST: Final = {
    "first": link("get_observation", "The first of them.", {**_PAGE, "id": "$response.body#/items/0/id"}),
    "next": link("list_observations", "The next page.", {**_PAGE, "after": "$response.body#/next"}),
}

OBSERVATION: Final = document("The observation", KEPT, examples.OBSERVATION, {"ETag": ETAG}, **_LINKS)
_WITH_DISPLACED: Final = examples.OBSERVATION | {"displaced": []}
ADDED: Final = document("The observation, which is new", _ADDED, _WITH_DISPLACED, {"ETag": ETAG, **_LOCATION}, **_LINKS)
REPEATED: Final = document(
    "The open observation with the same `dedupe_key`, counted again", _ADDED, _WITH_DISPLACED, {"ETag": ETAG}, **_LINKS
)
ALL_ADDED: Final = document(
    "The observations, in the order of the request",
    _shape(items=listed(KEPT), displaced=_DISPLACED),
    {"items": [examples.OBSERVATION], "displaced": []},
    first=_FIRST["first"],
)
OBSERVATIONS: Final = document(
    "The observations",
    {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": listed(KEPT),
            "next": {**or_null(ID), "description": "The cursor of the next page; null at the end."},
            "total": {
                "type": "integer",
                "description": "The number of matches, if requested with `count`; at most 1,000.",
            },
        },
    },
    {"items": [examples.OBSERVATION], "next": None},
    {"Link": LINK},
    **_FIRST,
)
ACTIVE: Final = _list("The active observations", KEPT, examples.OBSERVATION, first=_FIRST["first"])
READY: Final = ACTIVE | {"description": "What can be claimed now"}
CLAIM_ANSWER: Final = document("The claim", {"$ref": REFERENCE + "Claim"}, examples.CLAIMED)
TOMBSTONE: Final = document("The tombstone", {"$ref": REFERENCE + "ErasedEvent"}, examples.ERASED)

_OBSERVATIONS: Final[Schema] = {"type": "object", "additionalProperties": KEPT, "description": "Observations by id."}
_NAMED: Final[Schema] = {"id": ID, "page": STRING}


_DIFFERENCE: Final = component(
    "Difference",
    _shape(
        difference=one_of("added", "changed", "gone"),
        id=ID,
        fields={
            "type": "object",
            "additionalProperties": _shape(before={}, after={}),
            "description": "What changed, by field.",
        },
    ),
)
COMPONENTS["Difference"]["properties"] |= dict.fromkeys(("before", "after"), or_null(KEPT))
_MOTIVE: Final = component("Motive", _shape(id=ID, by=STRING, at=DATE_TIME))
EVENTS: Final = _list("The events, oldest first", EVENT, examples.ADDED_EVENT)
CONSEQUENCES: Final = document(
    "Its consequences",
    component(
        "Consequences",
        _shape(
            **_NAMED,
            observations=_OBSERVATIONS,
            beneath={"type": "object", "additionalProperties": listed(ID), "description": "What rests on each."},
            actions=listed(STRING),
            events=listed(EVENT),
        ),
    ),
    examples.CONSEQUENCES,
)
EXPOSURE: Final = document("The agents shown it", of_model(scratchbus.Exposure, "Exposure"), examples.EXPOSURE)
EVIDENCE: Final = _list("What it rests on", KEPT, examples.OBSERVATION)
TRACE: Final = document(
    "What led to the action",
    component(
        "Trace",
        _shape(action=STRING, page=STRING, motives=listed(_MOTIVE), observations=_OBSERVATIONS),
    ),
    examples.TRACE,
)
DIFFERENCES: Final = _list("What differs", _DIFFERENCE, examples.DIFFERENCE)

CALLER: Final = document(
    "Who you are here",
    component(
        "Caller",
        _shape(
            name=STRING,
            source=STRING,
            kind=STRING,
            scopes=listed(one_of(*scratchbus.TOKEN_SCOPES)),
            may_name_source=FLAG,
        ),
    ),
    {
        "name": "rules",
        "source": "fraud_detector",
        "kind": "daemon",
        "scopes": ["read", "publish"],
        "may_name_source": False,
    },
)
WELL: Final = document("All is well", _shape(status=one_of("ok")), {"status": "ok"})
