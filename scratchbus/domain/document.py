"""The base class of all documents: its fields say which events are folded into it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import Field, GetCoreSchemaHandler, computed_field
from pydantic_core import CoreSchema, core_schema

from scratchbus.domain.models import Immutable
from scratchbus.domain.position import Position
from scratchbus.domain.representation import public_names, readable
from scratchbus.domain.values import time_of_position


class _TextInJson:
    """Serializes a position as text in JSON, like pydantic's PlainSerializer, which is slow to import."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        schema["serialization"] = core_schema.plain_serializer_function_ser_schema(
            str, return_schema=core_schema.str_schema(), when_used="json"
        )
        return schema  # type: ignore[no-any-return]  # a schema with one more key


PositionText = Annotated[Position, _TextInJson()]
"""A position that is text in JSON."""

POSITION_FIELDS: Final = {"shard", "added_ms", "added_seq", "ms", "seq"}
"""The numbers in the positions of the first and the last event; `position` and `added` show them as text."""


class Document(Immutable):
    """The current state of a subject. Immutable; every event produces a new one.

    `version` counts the events about the subject; a write may be guarded by it. `created_at` is the time of the first
    event, `updated_at` and `position` are those of the last. `damaged` says that one of them could not be read.
    """

    version: int = 1
    damaged: bool = False
    shard: int = Field(default=0, repr=False)
    added_ms: int = Field(repr=False)
    added_seq: int = Field(repr=False)
    ms: int = Field(repr=False)
    seq: int = Field(repr=False)

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def created_at(self) -> datetime:
        """When the first event about it was appended."""
        return time_of_position(self.added_ms)

    @computed_field  # type: ignore[prop-decorator]  # see above
    @property
    def updated_at(self) -> datetime:
        """When the last event about it was appended."""
        return time_of_position(self.ms)

    @computed_field  # type: ignore[prop-decorator]  # see above
    @property
    def position(self) -> PositionText:
        """The position of the last event folded into it."""
        return Position(self.ms, self.seq, self.shard)

    def __dir__(self) -> list[str]:
        """Return its names for a shell, without the numbers that `position` and `created_at` show."""
        return public_names(self, POSITION_FIELDS)


class Remembered(Document):
    """The base class of the documents of memories."""

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields that `repr` shows: its own, then its version, times and position."""
        fields: dict[str, Any] = dict(super().__repr_args__())  # type: ignore[arg-type]  # its fields all have names
        if not self.damaged:
            del fields["damaged"]
        last = {name: fields.pop(name) for name in ("version", "created_at", "updated_at", "position")}
        return readable([*fields.items(), *last.items()])
