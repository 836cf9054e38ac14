"""The arguments that several tools take, their types in schemas, and the revisions that writes are based on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema

import scratchbus
from scratchbus.errors import Conflict, RevisionConflict

EventId = str | None
"""An id the model chooses for its call to make a retry safe; the instructions explain it once for all tools."""

Tags = Annotated[list[str] | None, Field(description="Topics.")]
Cursor = str | None
"""The `next_cursor` of the last answer."""

MAX_LIMIT: Final = 100
"""The most items of a list."""

Limit = Annotated[int, WithJsonSchema({"type": "integer"}), Field(ge=1, le=MAX_LIMIT)]

TYPES: Final = "x-types"
"""Marks the name of an observation type in a schema; its value says whether to include the meanings."""

Based = Annotated[int | None, Field(description="The one you read.")]
Overwrite = Annotated[bool, Field(description="Replace it unread.")]


@contextmanager
def replacing(what: str, how_to_read: str, revision: int | None, *, overwrite: bool) -> Iterator[int | None]:
    """Yield the revision a replacement is based on; 0 (the memory must be empty) if none is given.

    Turn RevisionConflict into a Conflict that tells the model how to proceed.
    """
    try:
        yield 0 if revision is None and not overwrite else revision
    except RevisionConflict as conflict:
        problem = "is not empty" if revision is None else f"has changed since revision {revision}"
        raise Conflict(
            f"the {what} {problem}, so nothing was written; read it with {how_to_read} and pass its revision, or pass"
            " overwrite=true without a revision to replace it unread"
        ) from conflict


def with_types(schema: Any, registry: scratchbus.Registry) -> Any:
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
