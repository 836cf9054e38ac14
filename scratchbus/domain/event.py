"""What all events have in common."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, computed_field

from scratchbus.domain.position import Position
from scratchbus.domain.values import moment_of_place, trusted

SCHEMA = 2
"""The newest schema version that this code writes and understands."""

ENVELOPE = frozenset({"id", "page", "subject", "kind", "type", "batch", "ms", "seq", "shard", "prev"})
"""The fields that are stored beside the body, not in it."""


class Event(BaseModel):
    """What all events have: what they are about, who says so, when, and where known why.

    `by` is who caused it, `cause` the text of the position it reacts to, `traceparent` a W3C trace context. `batch`
    is ``i/n`` within an atomic batch. `prev` is the stream id of the subject's event before this one.
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
        """Its place in the log."""
        return Position(self.ms, self.seq, self.shard)

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def at(self) -> datetime:
        """When the engine appended it (UTC)."""
        return moment_of_place(self.ms)

    def __hash__(self) -> int:
        return hash((self.id, self.position))

    def placed(self, **envelope: Any) -> Self:
        """Return the event with these fields of its envelope."""
        return trusted(type(self), self.__dict__ | envelope)
