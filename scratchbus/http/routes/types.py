"""The observation types: list, check, publish."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from scratchbus import AsyncBus, ObservationType, Registry, RegistryChanges, document_of, load_registry, parse_registry
from scratchbus.errors import RegistryError
from scratchbus.http import patterns
from scratchbus.http.documents import answer
from scratchbus.http.memories import Based
from scratchbus.http.published_files import Publication, find_publication, parsed, yaml_or_json
from scratchbus.http.schemas import (
    COUNT,
    FLAG,
    REVISION,
    STRING,
    document,
    exact,
    listed,
    one_of,
    or_null,
    record,
)
from scratchbus.http.server import AdminBus, ReadBus
from scratchbus.settings import shipped

router = APIRouter(tags=["types"])

_NAMES: Final = listed(STRING)
_OR_NULL: Final = or_null(STRING)
_CLASS: Final = one_of("open", "closed", "final")
_TYPE: Final = exact(
    name=STRING,
    description=STRING,
    priority={"type": "integer", "minimum": 0, "maximum": 100},
    default_ttl=_OR_NULL,
    default_owner=_OR_NULL,
    initial_status=STRING,
    lifecycle=exact(
        name=STRING,
        statuses={"type": "object", "additionalProperties": _CLASS},
        initial=_NAMES,
        transitions={"type": "object", "additionalProperties": _NAMES},
    ),
    max_content=COUNT,
    max_tags=COUNT,
    auto_archive_after=_OR_NULL,
    dedupe=_NAMES,
    context={"type": ["object", "null"], "additionalProperties": True},
    metadata={"type": ["object", "null"], "additionalProperties": True},
)
_EXAMPLE: Final[dict[str, Any]] = {
    "name": "risk_alert",
    "description": "Something may go wrong",
    "priority": 90,
    "default_ttl": "1d",
    "default_owner": None,
    "initial_status": "active",
    "lifecycle": {
        "name": "default",
        "statuses": {"active": "open", "pending_review": "open", "resolved": "closed", "archived": "final"},
        "initial": ["active", "pending_review"],
        "transitions": {"active": ["archived", "pending_review", "resolved"], "archived": []},
    },
    "max_content": 65536,
    "max_tags": 32,
    "auto_archive_after": None,
    "dedupe": [],
    "context": None,
    "metadata": None,
}
_TYPES: Final = document(
    "The types by priority, the version of the registry, also as ETag, and its text in YAML",
    exact(items=listed(_TYPE), version=COUNT, text=STRING),
    {"items": [_EXAMPLE], "version": 3, "text": "types:\n  risk_alert:\n    priority: 90\n"},
    REVISION,
)
_CHANGES: Final = dict.fromkeys(("added", "removed", "changed"), _NAMES)
_PROBLEM: Final = exact(
    line={"type": ["integer", "null"]},
    column={"type": ["integer", "null"]},
    key=_OR_NULL,
    problem=STRING,
    allowed={"type": ["array", "null"], "items": STRING},
)
_CHECKED: Final = document(
    "Whether the text is valid, what is wrong with it, and how its types differ from those in use",
    exact(
        is_valid=FLAG,
        problems=listed(_PROBLEM),
        **_CHANGES,
    ),
    {
        "is_valid": False,
        "problems": [
            {
                "line": 3,
                "column": 5,
                "key": "types.risk_alert.priority",
                "problem": "'high' is not a whole number from 0 to 100",
                "allowed": None,
            }
        ],
        "added": [],
        "removed": [],
        "changed": [],
    },
)
_PUBLISHED: Final = document(
    "The version of the registry, also as ETag, and its changes",
    exact(has_changed=FLAG, version=COUNT, **_CHANGES),
    {"has_changed": True, "version": 4, "added": ["price_alert"], "removed": [], "changed": []},
    REVISION,
)
_EXAMPLE_REGISTRY: Final = {"types": {"price_alert": {"description": "A price has moved", "priority": 60}}}
_NAME: Final = {"type": "string", "pattern": patterns.TYPE}
_SAYS: Final = {"type": "string", "pattern": patterns.NOT_BLANK}
_LIFE: Final = {"description": 'Such as "2h" or "never".', "anyOf": [_SAYS, {"type": "number", "exclusiveMinimum": 0}]}
_LIFECYCLE: Final = record(
    ("statuses", "initial"),
    statuses={"type": "object", "additionalProperties": _CLASS, "propertyNames": _NAME},
    initial=listed(_NAME, minItems=1),
    transitions={"type": "object", "additionalProperties": listed(_NAME)},
)
_NEW_TYPE: Final = record(
    description=_SAYS,
    priority={"type": "integer", "minimum": 0, "maximum": 100},
    default_ttl=_LIFE,
    default_owner=_SAYS | {"maxLength": 256},
    initial_status=_NAME,
    lifecycle={"description": "The name of one, or one of its own.", "anyOf": [_NAME, _LIFECYCLE]},
    max_content={"type": "integer", "minimum": 1, "maximum": 65_536},
    max_tags={"type": "integer", "minimum": 0, "maximum": 256},
    auto_archive_after=_LIFE,
    dedupe=listed(_SAYS, minItems=1),
    context={"type": "object", "additionalProperties": True, "description": "A JSON Schema."},
    metadata={"type": "object", "additionalProperties": True, "description": "A JSON Schema."},
)
_REGISTRY_SCHEMA: Final = record(
    ("types",),
    types={
        "type": "object",
        "additionalProperties": _NEW_TYPE | {"type": ["object", "null"], "additionalProperties": True},
        "propertyNames": _NAME,
        "minProperties": 1,
    },
    lifecycles={"type": "object", "additionalProperties": _LIFECYCLE, "propertyNames": _NAME},
)


_ANY_OBJECT: Final = {"type": "object", "additionalProperties": True}
_TO_CHECK: Final = yaml_or_json("What may be a registry, in YAML or JSON.", {}, _ANY_OBJECT, _EXAMPLE_REGISTRY)
_TO_PUBLISH: Final = yaml_or_json(
    "A registry, in YAML as `config/observation_types.yaml`, or in JSON.",
    _REGISTRY_SCHEMA,
    _REGISTRY_SCHEMA,
    _EXAMPLE_REGISTRY,
)


@router.get("/types", responses={200: _TYPES})
async def list_types(bus: ReadBus) -> Response:
    """List the observation types, the highest priority first."""
    await bus.refresh_types()
    kinds: list[ObservationType] = sorted(bus.types.types.values(), key=lambda each: (-each.priority, each.name))
    found = {"items": [document_of(each) for each in kinds], "version": bus.types_version, "text": bus.types.text}
    return answer(found, version=bus.types_version)


@router.post("/types/check", responses={200: _CHECKED}, openapi_extra=_TO_CHECK)
async def check_types(request: Request, bus: ReadBus) -> Response:
    """Check a registry without publishing it."""
    await bus.refresh_types()
    try:
        registry = await parsed(request, parse_registry, "types")
    except RegistryError as problem:
        found = {name: getattr(problem, name) for name in ("line", "column", "key", "problem", "allowed")}
        return answer({"is_valid": False, "problems": [found], **_said(RegistryChanges())})
    return answer({"is_valid": True, "problems": [], **_said(registry.changes_from(bus.types))})


@router.put("/types", responses={200: _PUBLISHED}, openapi_extra=_TO_PUBLISH)
async def push_types(request: Request, bus: AdminBus, guards: Based) -> Response:
    """Publish a registry to the whole bus; with If-Match, only if nobody else has published since."""
    await bus.refresh_types()
    registry = await parsed(request, parse_registry, "types")
    earlier = await find_publication(bus, "types", guards.event_id)
    changes = registry.changes_from(bus.types if earlier is None else _replaced_by(earlier, bus))
    has_changed = await bus.push_types(registry, expected_version=guards.expected_version, event_id=guards.event_id)
    version = bus.types_version if earlier is None else earlier.version
    document = {"has_changed": has_changed, "version": version, **_said(changes)}
    return answer(document, version=version)


def _replaced_by(earlier: Publication, bus: AsyncBus) -> Registry:
    """Return the registry that was in force before one was published."""
    if earlier.replaced is None:
        return load_registry(bus.settings.observation_types or shipped("observation_types.yaml"))
    return parse_registry(earlier.replaced, "types", is_published=True)


def _said(changes: RegistryChanges) -> dict[str, list[str]]:
    return {name: list(getattr(changes, name)) for name in ("added", "removed", "changed")}
