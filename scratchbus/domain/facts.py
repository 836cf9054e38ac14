"""Facts, as they were asserted."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from scratchbus.domain.document import Remembered
from scratchbus.domain.models import Immutable
from scratchbus.domain.values import Whole, millis, time_of_position


class Retraction(Immutable):
    """Who retracted a fact, why and when; `refuted` is the observation whose refutation is the reason, if any."""

    by: str
    reason: str
    refuted: str | None = None
    ms: Whole = Field(repr=False)
    seq: Whole = Field(repr=False)

    @property
    def at(self) -> datetime:
        """When it was retracted."""
        return time_of_position(self.ms)


class Fact(Remembered):
    """A triplet, exactly as it was asserted: `subject` has `relation` to `object`.

    `source` is who asserted it. It is true from `valid_at`, or else from when it was asserted, until `invalid_at`, or
    until another value replaces it: that is not stored, but follows from the other facts.
    """

    id: str
    subject: str
    relation: str
    object: str
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    confidence: float = 1.0
    evidence: list[str] = Field(default_factory=list)
    source_text: str | None = None
    source: str
    retraction: Retraction | None = None

    @property
    def triplet(self) -> str:
        """The fact in one line, as `A -> relation -> B`."""
        return f"{self.subject} -> {self.relation} -> {self.object}"

    @property
    def begins_ms(self) -> int:
        """The time from which it is true, in ms."""
        return self.added_ms if self.valid_at is None else millis(self.valid_at)


def plain_entity(name: str) -> str:
    """Return the form in which names of entities are compared: case and the amount of white space do not matter."""
    return " ".join(name.casefold().split())
