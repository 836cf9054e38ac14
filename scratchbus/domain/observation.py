"""The item of a Scratch Page: what callers give, what is kept, and what an update may replace."""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field
from pydantic_core import CoreSchema, SchemaValidator, core_schema
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.domain.checks import (
    PLAIN_LABEL,
    as_future,
    check_blockers,
    check_content,
    check_dedupe_key,
    check_evidence,
    check_label,
    check_object,
    check_tags,
    check_trigger,
)
from scratchbus.domain.document import Document, PlaceText
from scratchbus.domain.ownership import owner_token
from scratchbus.domain.payloads import PLACES, Model, ModelClass, Place, plain, read_payload
from scratchbus.domain.position import Position
from scratchbus.domain.recurrence import check_every
from scratchbus.domain.representation import readable
from scratchbus.domain.values import (
    MOST_TIMES,
    CheckedBy,
    Confidence,
    Duration,
    EventId,
    Guards,
    Moment,
    Whole,
    check_confidence,
    check_source,
    check_whole,
    checked,
    duration_of,
    refusal_in,
)
from scratchbus.errors import InvalidField, ReadOnlyField, UnknownField, key_text, shown


class Claim(BaseModel):
    """Who holds an observation, until when, and the fence that proves it.

    `by` is a name to show. `owner` is the token of the connection that made the claim, and that alone may use its
    fence; None for a claim from before claims had owners, whose fence anyone may use.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    by: str
    fence: int
    until: datetime
    owner: str | None = None

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield what `repr` shows."""
        return readable(super().__repr_args__())  # type: ignore[arg-type]  # its fields all have names

    def is_from(self, instance: str) -> bool:
        """Return whether the claim was made by a connection with this `Bus.instance`, under the name it shows."""
        return self.owner == owner_token(self.by, instance)


class ObservationFields(BaseModel):
    """The fields that an observation has from the event that adds it.

    A field that callers may give is declared here, as it is kept, and in `NewObservation`, as they give it.
    """

    model_config = ConfigDict(defer_build=True)

    content: str
    owner: str | None = None
    status: str = "active"
    status_class: str = "open"
    confidence: Confidence = 1.0
    context: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    priority: Whole = 50
    expires_at: datetime | None = None
    dedupe_key: str | None = None
    evidence: list[str] = Field(default_factory=list)
    remind_at: datetime | None = None
    remind_on: dict[str, Any] | None = None
    blocked_by: list[str] = Field(default_factory=list)
    not_before: datetime | None = None
    every: str | None = None


class _Known(BaseModel):
    model_config = ConfigDict(defer_build=True)

    id: str
    page: str
    type: str
    source: str


class Observation(Document, ObservationFields, _Known):
    """What someone saw: low commitment, typed, with a lifecycle. Immutable; every change gives a new one.

    Two are equal when all their fields but `displaced` are, and observations can be members of sets. The times are UTC
    and the engine's. `created_at` is the time of the event that added it, `updated_at` that of the last event about it.
    `position` is the place of that last event, `added` that of the first; both are text in JSON. `attempts` counts how
    often it was picked as work since its status changed last, and before `not_before` it is not picked again. One with
    `every` is never active itself: at `not_before` one like it is added, and then again and again. `chain` is there
    when something it rests on was refuted: the ids from the refuted one to the one that it rests on itself. When it was
    refuted itself, `seen_by` are the sessions and agents that had seen it, `followed` what they did since. Only the
    answer of an addition, but not of its retry, has `displaced`: the ids that made room for it on a full page.
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
    def added(self) -> PlaceText:
        """The place of the event that added it; lists are ordered by this."""
        return Position(self.added_ms, self.added_seq, self.shard)

    def payload(self, model: ModelClass[Model], place: Place = "content") -> Model:
        """Return its content, or its context or metadata, as such a pydantic model. Raises InvalidField."""
        return read_payload(getattr(self, place), model, place)

    @property
    def is_open(self) -> bool:
        """Whether it counts among the page's open observations."""
        return self.status_class == "open"

    def shown(self) -> list[str]:
        """Return the names of its fields that `repr` and JSON show, in their order.

        These are the fields of the specification, where it stands, and of the others those that are not as they begin.
        """
        others = [name for name, default in OTHERS.items() if getattr(self, name) != default]
        added = [] if self.added == self.position else ["added"]
        return [*SPECIFIED, *_PLACE, *others, *added]

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield what `repr` shows: what `shown` names, without None."""
        return readable((name, getattr(self, name)) for name in self.shown())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Observation):
            return NotImplemented
        return self.__dict__ | _OF_ANSWERS == other.__dict__ | _OF_ANSWERS

    def __hash__(self) -> int:
        return hash((self.page, self.id, self.version))


_OF_ANSWERS: Final = {"displaced": ()}
"""What an observation does not have where it is kept."""

SPECIFIED: Final = (
    "id", "type", "content", "source", "owner", "status", "confidence", "context", "tags", "created_at", "updated_at",
    "expires_at", "metadata",
)  # fmt: skip
"""The fields of an observation that its specification has."""

_PLACE: Final = ("page", "version", "position", "priority")

OTHERS: Final = {
    name: field.get_default(call_default_factory=True)
    for name, field in Observation.model_fields.items()
    if name not in (*SPECIFIED, *_PLACE, "shard", "ms", "seq", "added_ms", "added_seq")
}
"""What only this bus knows of an observation, each with what a new one has."""


_TEXT = core_schema.str_schema(strict=True)
_NOT_BLANK = core_schema.str_schema(strict=True, pattern=r"[^\s\x1c-\x1f]")  # besides \s what `str.isspace` knows
_PORTION = core_schema.float_schema(strict=True, ge=0, le=1)
_COUNT = core_schema.int_schema(strict=True, ge=1, le=MOST_TIMES)
_LABELS = core_schema.list_schema(core_schema.str_schema(strict=True, pattern=f"^{PLAIN_LABEL}$"), strict=True)
_TAGS = core_schema.no_info_after_validator_function(
    list, core_schema.no_info_after_validator_function(dict.fromkeys, _LABELS)
)


def _name_of_type(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidField("type", f"{shown(name)} is not a text")
    return name


class NewObservation(BaseModel):
    """What a caller gives to add an observation; what is left out comes from its type and the settings.

    `ttl` and `expires_at` exclude each other. `times` is how many sightings this one stands for. `event_id` makes a
    retry safe. `remind_at` is a moment, `remind_on` a mapping of `type`, `status` and `tags` that a later event has
    to match. `blocked_by` are ids of observations of the same page; it is not active while one of them is open.
    `not_before` is the moment when it becomes active, `every` how often a new one like it is added.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    type: Annotated[str, CheckedBy(_name_of_type, _TEXT)]
    content: Annotated[str, CheckedBy(partial(check_content, limit=sys.maxsize), _NOT_BLANK)]
    source: Annotated[str | None, CheckedBy(check_source)] = None
    owner: Annotated[str | None, CheckedBy(partial(check_label, "owner"))] = None
    status: str | None = None
    confidence: Annotated[float | None, CheckedBy(check_confidence, _PORTION)] = None
    context: Annotated[dict[str, Any] | None, CheckedBy(partial(check_object, "context"))] = None
    tags: Annotated[list[str] | None, CheckedBy(check_tags, _TAGS)] = None
    ttl: Annotated[Duration | None, CheckedBy(duration_of)] = None
    expires_at: Annotated[Moment | None, CheckedBy(partial(as_future, "expires_at"))] = None
    metadata: Annotated[dict[str, Any] | None, CheckedBy(partial(check_object, "metadata"))] = None
    dedupe_key: Annotated[str | None, CheckedBy(check_dedupe_key)] = None
    times: Annotated[int, CheckedBy(partial(check_whole, "times", most=MOST_TIMES), _COUNT)] = 1
    evidence: Annotated[list[str] | None, CheckedBy(check_evidence)] = None
    remind_at: Annotated[Moment | None, CheckedBy(partial(as_future, "remind_at"))] = None
    remind_on: Annotated[dict[str, Any] | None, CheckedBy(check_trigger)] = None
    blocked_by: Annotated[list[str] | None, CheckedBy(check_blockers)] = None
    not_before: Annotated[Moment | None, CheckedBy(partial(as_future, "not_before"))] = None
    every: Annotated[str | None, CheckedBy(check_every)] = None
    event_id: EventId = None

    def __init__(self, **given: Any) -> None:
        """Take the fields by name. Raises UnknownField or InvalidField."""
        given |= {name: plain(name, given[name]) for name in PLACES if name in given}
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise invalid(error, list(type(self).model_fields)) from None


class GivenObservation(Guards, NewObservation):
    """All that callers of `add` give, each with its check, which makes a `ttl` milliseconds or "never"."""


GUARDS = Guards.model_fields.keys()
"""The names of what callers of `add` give that is not of the observation itself."""


class ObservationPatch(TypedDict, total=False):
    """The keywords of `Page.update` and `Job.update`, each with its type; a field that is left out stays as it is.

    `owner` and `expires_at` may be None, which removes them. A `status` follows the lifecycle of the type.
    """

    content: str | BaseModel
    status: str
    owner: str | None
    confidence: float
    context: Mapping[str, Any] | BaseModel
    tags: Sequence[str]
    metadata: Mapping[str, Any] | BaseModel
    expires_at: Moment | None
    blocked_by: Sequence[str]


UPDATABLE = tuple(ObservationPatch.__annotations__)
"""What `update` may change; id, created_at, source and the rest are set once."""


class Changes(TypedDict, total=False):
    """The fields that an update has replaced, each with its new value; `status` has an event of its own."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]  # how pydantic wants it

    content: str
    owner: str | None
    confidence: Confidence
    context: dict[str, Any]
    tags: list[str]
    metadata: dict[str, Any]
    expires_at: datetime | None
    blocked_by: list[str]


def check_patch(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to replace, checked. Raises ReadOnlyField, UnknownField, InvalidField."""
    known = Observation.model_fields.keys() | Observation.model_computed_fields.keys()
    for name in changes:
        if name not in UPDATABLE:
            raise (ReadOnlyField if name in known else UnknownField)(key_text(name), UPDATABLE)
    if not changes:
        raise InvalidField("changes", f"nothing to update; give one of: {', '.join(UPDATABLE)}")
    try:
        return _patch().validate_python(changes)  # type: ignore[no-any-return]  # it is a dict of these
    except ValidationError as error:
        raise refusal_in(error) from None


def _change_of(name: str) -> CoreSchema:
    """Return how a new value of a field is checked: as when it is added, where None removes it if it may be missing."""
    if name == "status":  # which there may be any, and here is none
        return core_schema.no_info_plain_validator_function(partial(check_label, name))
    schema = checked(NewObservation.model_fields[name])
    return core_schema.nullable_schema(schema) if name in _REMOVABLE else schema


_REMOVABLE = {name for name, field in ObservationFields.model_fields.items() if field.default is None}


@cache
def _patch() -> SchemaValidator:
    """Return the compiled checks of an update."""
    fields = {name: core_schema.typed_dict_field(_change_of(name), required=False) for name in UPDATABLE}
    return SchemaValidator(core_schema.typed_dict_schema(fields))


def invalid(error: ValidationError, known: list[str]) -> InvalidField:
    """Return our error for the first problem that pydantic found."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "observation"
    if first["type"] == "extra_forbidden":
        return UnknownField(field, known)
    if first["type"] == "missing":
        return InvalidField(field, "is missing")
    return InvalidField(field, f"{shown(first.get('input'))}: {first['msg'].lower()}")
