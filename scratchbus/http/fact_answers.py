"""Facts as requests and answers have them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import WithJsonSchema

from scratchbus.http import examples, patterns
from scratchbus.http.memories import memory_example, memory_fields
from scratchbus.http.parameters import Label
from scratchbus.http.responses import EVENT, KEPT
from scratchbus.http.schemas import (
    COUNT,
    DATE_TIME,
    STRING,
    component,
    document,
    exact,
    items_of,
    link,
    listed,
    location_of,
    one_of,
    or_null,
)

TIME: Final = "2026-11-22T22:20:36Z"
RELATIONS: Final = ("depends_on", "runs_on", "uses", "part_of", "works_on")
"""Some of the relations that come with scratchbus."""

Entity = Label
"""The name of an entity."""

Relation = Annotated[
    Label,
    WithJsonSchema(
        {
            "description": "A relation, built in or declared on this bus.",
            "anyOf": [
                one_of(*RELATIONS),
                {"type": "string", "pattern": patterns.LABEL, "minLength": 1, "maxLength": 256},
            ],
            "examples": ["runs_on"],
        }
    ),
]

_RETRACTION: Final = exact(by=STRING, reason=STRING, refuted=or_null(STRING), at=DATE_TIME)
_FIELDS: Final = memory_fields(
    *("subject", "relation", "object"),
    **dict.fromkeys(("valid_at", "invalid_at"), or_null(DATE_TIME)),
    confidence={"type": "number", "minimum": 0, "maximum": 1},
    evidence=listed(STRING),
    source_text=or_null(STRING),
    retraction=or_null(_RETRACTION),
)
_FACT: Final = component("Fact", exact(**_FIELDS))
_EXAMPLE: Final = memory_example(
    "fact_1795386035607",
    subject="api",
    relation="runs_on",
    object="Node 24",
    valid_at=None,
    invalid_at=None,
    confidence=1.0,
    evidence=[],
    source_text="we upgraded to Node 24",
    retraction=None,
)
_SPAN_FIELDS: Final[dict[str, Any]] = {
    "fact": _FACT,
    "begins": DATE_TIME,
    "ends": or_null(DATE_TIME),
    "state": one_of("valid", "contested", "superseded", "retracted"),
    "ended_by": or_null(STRING),
    "contested_by": listed(STRING),
}
_SPAN: Final = component("FactSpan", exact(**_SPAN_FIELDS))
_SPAN_EXAMPLE: Final[dict[str, Any]] = {
    "fact": _EXAMPLE,
    "begins": "2026-11-22T22:20:35.607000Z",
    "ends": None,
    "state": "valid",
    "ended_by": None,
    "contested_by": [],
}
_NEIGHBOUR: Final = component("Neighbour", exact(entity=STRING, distance=COUNT, fact=_FACT))
_HERE: Final = {"scope": "$request.path.scope", "fact": "$response.body#/id"}
_LINKS: Final = {
    "get": link("get_fact", "Why it is known.", _HERE),
    "retract": link("retract_fact", "Take it back.", _HERE),
}
_LOCATION: Final = location_of("/api/v1/scopes/ada%2Fshop/facts/fact_1795386035607")
_ASSERTED: Final[dict[str, Any]] = {
    "position": "1795386035607-4",
    "id": "IRQJtwDaecy0145~1a205758442-6b",
    "page": "knowledge:ada/shop",
    "subject": "fact_1795386035607",
    "kind": "fact_asserted",
    "type": "",
    "batch": "1/1",
    "by": "analyst",
    "at": "2026-11-22T22:20:35.607000Z",
    "about": "api",
    "relation": "runs_on",
    "object": "Node 24",
    "confidence": 1.0,
    "evidence": [examples.ID],
    "source_text": "we upgraded to Node 24",
}

FACT: Final = document("The fact", _FACT, _EXAMPLE, **_LINKS)
ASSERTED: Final = document("The fact, which is new", _FACT, _EXAMPLE, _LOCATION, **_LINKS)
FACTS: Final = items_of("The facts", _FACT, _EXAMPLE)
NEIGHBOURS: Final = items_of(
    "The entities, each with its distance in facts and the last fact on the path",
    _NEIGHBOUR,
    {"entity": "Node 24", "distance": 1, "fact": _EXAMPLE},
)
SPANS: Final = items_of("The facts with their times; `ends` is null if the end is unknown", _SPAN, _SPAN_EXAMPLE)
TRIPLETS: Final = document(
    "The text, and its estimated tokens",
    exact(text=STRING, tokens=COUNT),
    {"text": "api -> runs_on -> Node 24", "tokens": 8},
)
CONTESTS: Final = items_of(
    "The contests, each with its facts, the first asserted first",
    exact(facts=listed(_FACT)),
    {"facts": [_EXAMPLE, {**_EXAMPLE, "id": "fact_1795386035608", "object": "Node 22", "source": "scout"}]},
)
CONTESTED: Final = items_of("The observations that ask which of several facts is true", KEPT, examples.OBSERVATION)
WHY: Final = document(
    "The fact, the time it is true, its events, and the observations that support it",
    exact(**_SPAN_FIELDS, events=listed(EVENT), evidence=listed(KEPT)),
    {
        **_SPAN_EXAMPLE,
        "fact": {**_EXAMPLE, "evidence": [examples.ID]},
        "events": [_ASSERTED],
        "evidence": [examples.OBSERVATION],
    },
)
