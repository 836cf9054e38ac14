"""The observation, the item of a Scratch Page, and its claim."""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, computed_field

from scratchbus.domain.document import POSITION_FIELDS, Document, PositionText
from scratchbus.domain.models import Immutable, default_of
from scratchbus.domain.observation_models import ObservationFields
from scratchbus.domain.ownership import owner_token
from scratchbus.domain.payloads import Model, ModelClass, PayloadField, read_payload
from scratchbus.domain.position import Position
from scratchbus.domain.representation import public_names, readable


class Claim(Immutable):
    """A claim on an observation: its holder, when it ends, and the fence that proves it.

    `by` is a name to show. `owner` is the token of the connection that made the claim; only that connection may use the
    fence. It is None for a claim from before claims had owners, whose fence anyone may use.
    """

    by: str
    fence: int
    until: datetime
    owner: str | None = None

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields that `repr` shows."""
        return readable(super().__repr_args__())  # type: ignore[arg-type]  # its fields all have names

    def is_from(self, instance: str) -> bool:
        """Return whether the claim was made by a connection with this `Bus.instance`, under the name it shows."""
        return self.owner == owner_token(self.by, instance)


class _Known(BaseModel):
    model_config = ConfigDict(defer_build=True)

    id: str
    page: str
    type: str
    source: str


class Observation(Document, ObservationFields, _Known):
    """Something that someone saw: low commitment, typed, with a lifecycle. Immutable; every change produces a new one.

    Observations are hashable, and equal if all their fields except `displaced` are. Times are the engine's, in UTC.
    `created_at` is the time of the event that added it, `updated_at` that of the last event about it. `position` is the
    position of that last event, `added` that of the first; both are text in JSON. `attempts` counts how often it was
    picked as work since its last change of status; it is not picked again before `not_before`. One with `every` is
    never active itself: at `not_before`, and then repeatedly, one like it is added. `chain` is set if something it
    rests on was refuted: the ids from the refuted observation to the one that this one names as evidence. If it was
    refuted itself, `seen_by` are the sessions and agents that had seen it, `followed` their actions since. `displaced`
    are the ids that an addition displaced from a full page; only the result of the addition has it, and not that of a
    retry.
    """

    occurrences: int = 1
    links: list[str] = Field(default_factory=list)
    claim: Claim | None = None
    reason: str | None = None
    reason_code: str | None = None
    chain: list[str] = Field(default_factory=list)
    seen_by: list[str] = Field(default_factory=list)
    followed: list[str] = Field(default_factory=list)
    archive_at: datetime | None = None
    due_at: datetime | None = None
    displaced: tuple[str, ...] = ()
    fence: int = 0
    attempts: int = 0

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def added(self) -> PositionText:
        """The position of the event that added it; lists are ordered by this."""
        return Position(self.added_ms, self.added_seq, self.shard)

    def payload(self, model: ModelClass[Model], place: PayloadField = "content") -> Model:
        """Return its content, or its context or metadata, as this pydantic model. Raises InvalidField."""
        return read_payload(getattr(self, place), model, place)

    @property
    def is_open(self) -> bool:
        """Whether it is one of the page's open observations."""
        return self.status_class == "open"

    def shown(self) -> list[str]:
        """Return the names of the fields that `repr` and JSON show, in order.

        These are the fields of the specification, the page, version, position and priority, and other fields without
        their default values.
        """
        others = [name for name, default in BUS_FIELDS.items() if getattr(self, name) != default]
        added = [] if self.added == self.position else ["added"]
        return [*SPECIFIED, *ALWAYS_SHOWN, *others, *added]

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields that `repr` shows: those of `shown` that are not None."""
        return readable((name, getattr(self, name)) for name in self.shown())

    def __dir__(self) -> list[str]:
        """Return its names for a shell."""
        return public_names(self, {*POSITION_FIELDS, "shown"})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Observation):
            return NotImplemented
        return self.__dict__ | _RESULT_FIELDS == other.__dict__ | _RESULT_FIELDS

    def __hash__(self) -> int:
        return hash((self.page, self.id, self.version))


_RESULT_FIELDS: Final = {"displaced": ()}
"""Fields that only results of calls have, with their stored values."""

SPECIFIED: Final = (
    "id", "type", "content", "source", "owner", "status", "confidence", "context", "tags", "created_at", "updated_at",
    "expires_at", "metadata",
)  # fmt: skip
"""The fields of an observation in the specification."""

ALWAYS_SHOWN: Final = ("page", "version", "position", "priority")
"""The fields of the bus that are shown even if they have their default values."""

BUS_FIELDS: Final = {
    name: default_of(field)
    for name, field in Observation.model_fields.items()
    if name not in (*SPECIFIED, *ALWAYS_SHOWN, *POSITION_FIELDS)
}
"""The fields that the bus adds to the specification's, with their default values."""
