"""The events of facts; their subjects are `fact_<ms>`."""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

from datetime import datetime
from typing import Literal

from pydantic import Field

from scratchbus.domain.event import Event


class FactAsserted(Event):
    """A relation between `about`, the subject of the fact, and an object was asserted.

    It is true from `valid_at`, or else from the time of the event, until `invalid_at`, if that is known. `source_text`
    is the text that states it, `evidence` the observations that it rests on.
    """

    kind: Literal["fact_asserted"] = "fact_asserted"
    about: str
    relation: str
    object: str
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    confidence: float = 1.0
    evidence: list[str] = Field(default_factory=list)
    source_text: str | None = None


class FactRetracted(Event):
    """The fact was retracted; `refuted` is the observation whose refutation is the reason, if there is one."""

    kind: Literal["fact_retracted"] = "fact_retracted"
    reason: str
    refuted: str | None = None
