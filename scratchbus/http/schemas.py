"""The JSON Schemas of bodies and documents, for OpenAPI; the bus itself checks what is sent.

A schema that has a name is a component of the document, which others refer to.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import TypeAdapter

from scratchbus.http import examples, patterns
from scratchbus.http.patterns import text

Schema = dict[str, Any]

COMPONENTS: Final[dict[str, Schema]] = {}
"""The schemas that have names."""

EXAMPLES: Final[dict[str, Any]] = {}
"""The examples of answers, by the slugs of their descriptions; FastAPI would drop their nulls."""

REFERENCE: Final = "#/components/schemas/"
_POSITION_PARTS: Final = ("shard", "ms", "seq", "added_ms", "added_seq", "prev")
"""The fields of models that make up positions; documents show the positions."""


STRING: Final[Schema] = {"type": "string"}
DATE_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
FLAG: Final[Schema] = {"type": "boolean"}


def component(name: str, schema: Schema) -> Schema:
    """Give a schema a name, which no other has; return the reference to it."""
    if COMPONENTS.setdefault(name, schema) != schema:
        raise ValueError(f"two schemas are named {name}")
    return {"$ref": REFERENCE + name}


def body(schema: Schema, *, required: bool = True, example: Any = None) -> dict[str, Any]:
    """Return the request body of an operation, for `openapi_extra`."""
    content: dict[str, Any] = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {"requestBody": {"required": required, "content": {"application/json": content}}}


def document(
    description: str, schema: Schema, example: Any, headers: dict[str, Any] | None = None, **links: Any
) -> dict[str, Any]:
    """Return the response of an operation, for `responses`; the links name operations that its document leads to."""
    name = re.sub(r"\W+", "-", description.lower()).strip("-")
    EXAMPLES[name] = {"value": example}
    content = {"schema": schema, "examples": {name: {"$ref": f"#/components/examples/{name}"}}}
    found: dict[str, Any] = {"description": description, "content": {"application/json": content}}
    if headers:
        found["headers"] = headers
    return found | ({"links": links} if links else {})


def record(required: tuple[str, ...] = (), example: Any = None, **properties: Any) -> Schema:
    """Return the schema of an object that may have these properties, and no others."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return schema if example is None else schema | {"examples": [example]}


def exact(**properties: Any) -> Schema:
    """Return the schema of an object that has all of these properties and no others."""
    return record(tuple(properties), **properties)


def any_of(*schemas: Schema) -> Schema:
    """Return the part of the schema of an object that one of these has to fit as well.

    They are in an `allOf`, because generators of types would make each of them a type of its own otherwise.
    """
    return {"allOf": [{"anyOf": [*schemas]}]}


def one_of(*texts: str) -> Schema:
    """Return the schema of one of these texts."""
    return {"type": "string", "enum": [*texts]}


def listed(items: Schema, **more: Any) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items, **more}


def or_null(schema: Schema) -> Schema:
    """Return a schema that null fits too."""
    if "type" in schema and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def without_null(schema: Schema) -> Schema:
    """Return a schema that null does not fit, for a field that is left out rather than null."""
    others = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(others) != 1:
        return schema
    return {**{name: value for name, value in schema.items() if name != "anyOf"}, **others[0]}


def leave_out_nulls(schema: Schema) -> Schema:
    """Return the schema of a document that has all its fields but those that would be null."""
    found = {name: without_null(each) for name, each in schema["properties"].items()}
    required = [name for name, each in schema["properties"].items() if found[name] is each]
    return {**schema, "properties": found, "required": required}


def complete(schema: Schema) -> Schema:
    """Return the schema of a document that has all its fields, null where they have no value."""
    return {**schema, "required": [*schema["properties"]]}


def of_model(model: Any, name: str) -> Schema:
    """Make a component of a pydantic model that is shown whole, and of those inside it; return the reference to it."""
    schema = TypeAdapter(model).json_schema(mode="serialization", ref_template=REFERENCE + "{model}")
    for inner, found in schema.pop("$defs", {}).items():
        if inner not in COMPONENTS:  # an observation is described in more detail
            component(inner, complete(document_schema(found)))
    return component(name, complete(document_schema(schema)))


def document_schema(schema: Schema) -> Schema:
    """Return the schema of a model's document: without titles, defaults, and the numbers that make up positions."""
    schema.pop("title", None)
    for field in _POSITION_PARTS:
        schema.get("properties", {}).pop(field, None)
    for found in schema.get("properties", {}).values():
        if isinstance(found, dict):
            found.pop("title", None)
            found.pop("default", None)
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name not in _POSITION_PARTS]
    return schema


def items_of(description: str, schema: Schema, *examples: Any) -> dict[str, Any]:
    """Return the response of an operation whose document is a list of `items`."""
    return document(description, exact(items=listed(schema)), {"items": [*examples]})


def link(operation: str, description: str, parameters: dict[str, str], body: Any = None) -> dict[str, Any]:
    """Return the link from an answer to an operation, with its parameters and body taken from the answer."""
    found: dict[str, Any] = {"operationId": operation, "description": description, "parameters": parameters}
    return found if body is None else {**found, "requestBody": body}


def header(description: str, example: str, *, required: bool = False, pattern: str | None = None) -> dict[str, Any]:
    """Return the header of a response."""
    schema: Schema = {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}
    return {"description": description, "required": required, "schema": schema, "example": example}


def with_headers(response: dict[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    """Return the response of an operation with more headers."""
    return {**response, "headers": {**response.get("headers", {}), **headers}}


def location_of(example: str) -> dict[str, Any]:
    """Return the header that says where something new is."""
    return {"Location": header("Where it is.", example, required=True)}


REVISION: Final = {"ETag": header("The revision, for `If-Match`.", '"3"', pattern='^"(0|[1-9][0-9]*)"$')}
"""The header with the revision of a memory or a registry; a past one has none."""

ID: Final = component("Id", text(patterns.ID, "A ULID.", examples=[examples.ID]))
LABEL: Final = component(
    "Label", text(patterns.LABEL, "Printable characters, not only spaces.", minLength=1, maxLength=256)
)
SOURCE: Final = component("Source", text(patterns.SOURCE, "The author of events: a daemon, an agent or a person."))
TYPE: Final = component(
    "TypeName",
    {
        "description": "The name of a type, built in or registered on this bus.",
        "anyOf": [
            one_of(*examples.TYPES),
            {"type": "string", "pattern": patterns.TYPE},
        ],
    },
)
TIME: Final = component(
    "Time", text(patterns.TIME, "RFC 3339, with its zone.", format="date-time", examples=["2030-01-31T14:02:00Z"])
)
DURATION: Final = component(
    "Duration",
    {
        "description": "A number of seconds, or a text such as 90s, 2h, 1h30m or 7d.",
        "anyOf": [
            text(patterns.DURATION, examples=["2h"]),
            {"type": "number", "minimum": 0.001, "maximum": 3_153_600_000},
        ],
    },
)
LIFE: Final = component("Life", {"description": "A duration, or never.", "anyOf": [DURATION, one_of("never")]})
OBJECT: Final = component(
    "Object", {"type": "object", "additionalProperties": True, "description": "At most 64 KiB and 100 levels."}
)
POSITION: Final = component("Position", text(patterns.POSITION, "The place of an event in the log."))
