"""JSON schemas of tools with the current observation types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scratchbus import Registry


TYPES: Final = "x-types"
"""Marks the name of an observation type in a schema; its value says whether to include the meanings."""


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
