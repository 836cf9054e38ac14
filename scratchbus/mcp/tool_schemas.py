"""JSON schemas for models and clients: short, typed throughout, without references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scratchbus import Registry

TYPES: Final = "x-types"
"""Marks the name of an observation type in a schema; its value says whether to include the meanings."""


def lean(schema: Any, parts: Mapping[str, Any] | None = None) -> Any:
    """Return a JSON schema without titles, references and redundant defaults.

    Titles cost a model tokens and say nothing; references slow validation in clients; strict clients refuse a default
    of another type.
    """
    if isinstance(schema, list):
        return [lean(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if parts is None:
        parts = schema.get("$defs", {})
    if "$ref" in schema:
        return lean(parts[schema["$ref"].removeprefix("#/$defs/")], parts)
    return {name: lean(value, parts) for name, value in schema.items() if not _is_idle(name, value)}


def _is_idle(name: str, value: Any) -> bool:
    return (
        name == "$defs"
        or (name == "title" and isinstance(value, str))
        or (name == "default" and value in (None, False, ""))
    )


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional argument without the null it also accepts."""
    choices = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    if len(choices) == 1:
        return {**choices[0], **rest}
    return {"anyOf": choices, **rest} if choices else schema


def with_types(schema: Any, registry: Registry) -> Any:
    """Return a schema with the observation types as an enum, and with their meanings where it asks for them."""
    if isinstance(schema, list):
        return [with_types(each, registry) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if TYPES not in schema:
        return {name: with_types(value, registry) for name, value in schema.items()}
    found = {name: value for name, value in schema.items() if name != TYPES} | {"enum": list(registry.types)}
    if schema[TYPES]:
        meanings = (type.description.rstrip(".") or name for name, type in registry.types.items())
        found["description"] = f"In this order: {'; '.join(meanings)}"
    return found
