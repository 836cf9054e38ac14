"""The relations that facts may have: list, publish."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response

from scratchbus import parse_relations
from scratchbus.http import patterns
from scratchbus.http.documents import answer
from scratchbus.http.memories import Based, after_write
from scratchbus.http.parameters import WriteHeaders
from scratchbus.http.published_files import find_publication, parsed, yaml_or_json
from scratchbus.http.schemas import COUNT, FLAG, REVISION, STRING, document, exact, listed, one_of, record
from scratchbus.http.server import AdminBus, MemoryBus

router = APIRouter(tags=["relations"])

_NAMES: Final = listed(STRING)
_VALUES: Final = one_of("one", "many")
_RELATION: Final = exact(
    name=STRING,
    description=STRING,
    values=_VALUES,
    inverse=STRING,
    symmetric=FLAG,
    transitive=FLAG,
    aliases=_NAMES,
)
_EXAMPLE: Final[dict[str, Any]] = {
    "name": "runs_on",
    "description": "The subject runs on the object.",
    "values": "one",
    "inverse": "runs",
    "symmetric": False,
    "transitive": False,
    "aliases": ["upgraded_to"],
}
_RELATIONS: Final = document(
    "The relations by name, their version, also as ETag (0 if none were published), and their text in YAML",
    exact(items=listed(_RELATION), version=COUNT, text=STRING),
    {"items": [_EXAMPLE], "version": 2, "text": "relations:\n  runs_on:\n    values: one\n"},
    REVISION,
)
_PUBLISHED: Final = document(
    "Whether anything changed, the version of the relations, also as ETag, and their names",
    exact(has_changed=FLAG, version=COUNT, relations=_NAMES),
    {"has_changed": True, "version": 3, "relations": ["runs_on", "same_as"]},
    REVISION,
)
_NAME: Final = {"type": "string", "pattern": patterns.TYPE}
_NEW: Final = record(
    description={"type": "string", "pattern": patterns.NOT_BLANK},
    values=_VALUES,
    inverse=_NAME,
    symmetric=FLAG,
    transitive=FLAG,
    aliases=listed(_NAME),
)
_FILE: Final = exact(
    relations={
        "type": "object",
        "additionalProperties": _NEW | {"type": ["object", "null"]},
        "propertyNames": _NAME,
        "minProperties": 1,
    }
)
_TO_PUBLISH: Final = yaml_or_json(
    "Relations, in YAML like `config/relations.yaml`, or in JSON.",
    _FILE,
    _FILE,
    {"relations": {"runs_on": {"values": "one", "inverse": "runs", "aliases": ["upgraded_to"]}}},
)


_NO_GUARDS: Final = WriteHeaders(None).as_keywords()


@router.get("/relations", responses={200: _RELATIONS})
async def list_relations(bus: MemoryBus) -> Response:
    """List the relations that facts may use: the published ones, by default those of the server's file."""
    found = await bus.relations()
    version = bus.relations_version
    items = [asdict(each) for _, each in sorted(found.relations.items())]
    body = {"items": items, "version": version, "text": found.text}
    return answer(body, version=version)


@router.put("/relations", responses={200: _PUBLISHED}, openapi_extra=_TO_PUBLISH)
async def push_relations(request: Request, bus: AdminBus, guards: Based) -> Response:
    """Publish relations to the whole bus; with If-Match, only if nobody else has published since."""
    relations = await parsed(request, parse_relations, "relations")
    earlier = await find_publication(bus, "relations", guards.event_id)
    event_id = guards.event_id or uuid4().hex
    is_in_force = guards.as_keywords() == _NO_GUARDS and (await bus.relations()).text == relations.text
    has_changed = not is_in_force and await bus.push_relations(
        relations, expected_version=guards.expected_version, event_id=event_id
    )
    with after_write(event_id):
        await bus.relations()
    version = bus.relations_version if earlier is None else earlier.version
    body = {"has_changed": has_changed, "version": version, "relations": sorted(relations.relations)}
    return answer(body, version=version)
