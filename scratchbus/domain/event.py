"""The base class of all events."""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, computed_field

from scratchbus.domain.models import default_of, trusted
from scratchbus.domain.payloads import PAYLOAD_FIELDS, Model, ModelClass, PayloadField, read_payload
from scratchbus.domain.position import Position
from scratchbus.domain.representation import readable
from scratchbus.domain.values import time_of_position

SCHEMA = 2
"""The newest schema version that this code writes and understands."""

ENVELOPE = frozenset({"id", "page", "subject", "kind", "type", "batch", "ms", "seq", "shard", "prev"})
"""The fields that are stored beside the body, not in it."""

_FIRST = ("position", "at", "by", "page", "subject", "type")


class Event(BaseModel):
    """The base class of all events: the subject, the author, the position and, if known, the cause.

    `by` is the author, `cause` the text of the position it reacts to, `traceparent` a W3C trace context. `batch` is
    ``i/n`` within an atomic batch. `prev` is the stream id of the subject's previous event.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    schema_version: ClassVar[int] = SCHEMA

    id: str = ""
    page: str = ""
    subject: str = ""
    kind: str = ""
    type: str = ""
    batch: str = "1/1"
    prev: str = ""
    ms: int = Field(default=0, repr=False)
    seq: int = Field(default=0, repr=False)
    shard: int = Field(default=0, repr=False)
    by: str
    cause: str | None = None
    traceparent: str | None = None

    @property
    def position(self) -> Position:
        """Its position in the log."""
        return Position(self.ms, self.seq, self.shard)

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def at(self) -> datetime:
        """When the engine appended it (UTC)."""
        return time_of_position(self.ms)

    def payload(self, model: ModelClass[Model], place: PayloadField = "content") -> Model:
        """Return the content that it adds or replaces, or the context or metadata, as this pydantic model.

        Raises InvalidField if it does not fit the model, or if the event has none.
        """
        payloads = getattr(self, "changes", {}) | {
            name: value for name in PAYLOAD_FIELDS if (value := getattr(self, name, None))
        }
        return read_payload(payloads.get(place), model, place)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields that `repr` shows: position, author and subject, then the body without default values."""
        fields = type(self).model_fields
        first = [(name, getattr(self, name)) for name in _FIRST]
        rest = ((name, getattr(self, name)) for name in fields if name not in (*ENVELOPE, *_FIRST))
        set_fields = [
            (name, value) for name, value in rest if fields[name].is_required() or value != default_of(fields[name])
        ]
        return readable([*first, *set_fields, ("id", self.id)])

    def __hash__(self) -> int:
        return hash((self.id, self.position))

    def placed(self, **envelope: Any) -> Self:
        """Return the event with these envelope fields."""
        return trusted(type(self), self.__dict__ | envelope)
