"""The item of a Scratch Page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    ValidationError,
    computed_field,
)
from pydantic_core import CoreSchema, core_schema

from scratchbus.domain.checks import (
    as_time,
    check_content,
    check_dedupe_key,
    check_evidence,
    check_label,
    check_object,
    check_tags,
    check_trigger,
)
from scratchbus.domain.ownership import owner_token
from scratchbus.domain.position import Position, moment_of_place
from scratchbus.domain.values import (
    MOST_TIMES,
    NEVER,
    Duration,
    check_confidence,
    check_event_id,
    check_source,
    check_whole,
    duration_ms,
)
from scratchbus.errors import InvalidField, InvalidInput, UnknownField, shown

UPDATABLE = ("content", "status", "owner", "confidence", "context", "tags", "metadata", "expires_at")
"""What `update` may change; id, created_at, source and the rest are set once."""


_Place = Annotated[Position, PlainSerializer(str, when_used="json")]
"""A position that is text in JSON."""


class Claim(BaseModel):
    """Who holds an observation, until when, and the fence that proves it.

    `by` is a name to show. `owner` is the token of the connection that made the claim, and that alone may use its
    fence; None for a claim from before claims had owners, whose fence anyone may use.
    """

    model_config = ConfigDict(frozen=True)

    by: str
    fence: int
    until: datetime
    owner: str | None = None

    def is_from(self, instance: str) -> bool:
        """Return whether the claim was made by a connection with this `Bus.instance`, under the name it shows."""
        return self.owner == owner_token(self.by, instance)


class Observation(BaseModel):
    """What someone saw: low commitment, typed, with a lifecycle. Immutable; every change gives a new one.

    Two are equal when all their fields are, and observations can be members of sets. The times are UTC and the
    engine's. `created_at` is the time of the event that added it, `updated_at` that of the last event about it.
    `position` is the place of that last event, `added` that of the first; both are text in JSON. `attempts` counts how
    often it was picked as work since its status changed last, and before `not_before` it is not picked again. `chain`
    is there when something it rests on was refuted: the ids from the refuted one to the one that it rests on itself.
    When it was refuted itself, `seen_by` are the sessions and agents that had seen it, `followed` what they did since.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    page: str
    type: str
    content: str
    source: str
    owner: str | None = None
    status: str = "active"
    status_class: str = "open"
    confidence: float = 1.0
    context: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    expires_at: datetime | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    version: int = 1
    priority: int = 50
    occurrences: int = 1
    evidence: list[str] = Field(default_factory=list)
    links: list[str] = Field(default_factory=list)
    claim: Claim | None = None
    dedupe_key: str | None = None
    reason: str | None = None
    reason_code: str | None = None
    chain: list[str] = Field(default_factory=list)
    seen_by: list[str] = Field(default_factory=list)
    followed: list[str] = Field(default_factory=list)
    archive_at: datetime | None = None
    remind_at: datetime | None = None
    remind_on: dict[str, Any] | None = None
    due_at: datetime | None = None
    fence: int = 0
    attempts: int = 0
    not_before: datetime | None = None
    damaged: bool = False
    shard: int = 0
    added_ms: int = Field(repr=False)
    added_seq: int = Field(repr=False)
    ms: int = Field(repr=False)
    seq: int = Field(repr=False)

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def created_at(self) -> datetime:
        """When it was added."""
        return moment_of_place(self.added_ms)

    @computed_field  # type: ignore[prop-decorator]  # see above
    @property
    def updated_at(self) -> datetime:
        """When the last event about it was appended."""
        return moment_of_place(self.ms)

    @computed_field  # type: ignore[prop-decorator]  # see above
    @property
    def position(self) -> _Place:
        """The place of the last event folded into it."""
        return Position(self.ms, self.seq, self.shard)

    @computed_field  # type: ignore[prop-decorator]  # see above
    @property
    def added(self) -> _Place:
        """The place of the event that added it; lists are ordered by this."""
        return Position(self.added_ms, self.added_seq, self.shard)

    @property
    def is_open(self) -> bool:
        """Whether it counts among the page's open observations."""
        return self.status_class == "open"

    def __hash__(self) -> int:
        return hash((self.page, self.id, self.version))


class CheckedBy(NamedTuple):
    """How `parse` checks a field: the function returns the value as it is kept, or raises InvalidInput.

    `common` is what nearly all callers give: a schema of values that the function returns as they are. It is tried
    first, since it costs no call.
    """

    check: Callable[[Any], object]
    common: CoreSchema | None = None

    def schema(self) -> CoreSchema:
        """Return what is compiled."""
        checked = core_schema.no_info_plain_validator_function(self.check)
        if self.common is None:
            return checked
        return core_schema.union_schema([self.common, checked], mode="left_to_right")


_TEXT = core_schema.str_schema(strict=True)
_NOT_BLANK = core_schema.str_schema(strict=True, pattern=r"[^\s\x1c-\x1f]")  # besides \s what `str.isspace` knows
_PORTION = core_schema.float_schema(strict=True, ge=0, le=1)
_COUNT = core_schema.int_schema(strict=True, ge=1, le=MOST_TIMES)


def _name_of_type(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidField("type", f"{shown(name)} is not a text")
    return name


def _length_of(ttl: object) -> timedelta | str:
    ms = duration_ms(ttl)
    return NEVER if ms is None else timedelta(milliseconds=ms)


class NewObservation(BaseModel):
    """What a caller gives to add an observation; what is left out comes from its type and the settings.

    `ttl` and `expires_at` exclude each other. `times` is how many sightings this one stands for. `event_id` makes a
    retry safe. `remind_at` is a moment, `remind_on` a mapping of `type`, `status` and `tags` that a later event has
    to match.
    """

    model_config = ConfigDict(extra="forbid")

    type: Annotated[str, CheckedBy(_name_of_type, _TEXT)]
    content: Annotated[str, CheckedBy(partial(check_content, limit=sys.maxsize), _NOT_BLANK)]
    source: Annotated[str | None, CheckedBy(check_source)] = None
    owner: Annotated[str | None, CheckedBy(partial(check_label, "owner"))] = None
    status: str | None = None
    confidence: Annotated[float | None, CheckedBy(check_confidence, _PORTION)] = None
    context: Annotated[dict[str, Any] | None, CheckedBy(partial(check_object, "context"))] = None
    tags: Annotated[list[str] | None, CheckedBy(check_tags)] = None
    ttl: Annotated[Duration | None, CheckedBy(_length_of)] = None
    expires_at: Annotated[datetime | None, CheckedBy(partial(as_time, "expires_at"))] = None
    metadata: Annotated[dict[str, Any] | None, CheckedBy(partial(check_object, "metadata"))] = None
    dedupe_key: Annotated[str | None, CheckedBy(check_dedupe_key)] = None
    times: Annotated[int, CheckedBy(partial(check_whole, "times", most=MOST_TIMES), _COUNT)] = 1
    evidence: Annotated[list[str] | None, CheckedBy(check_evidence)] = None
    remind_at: Annotated[datetime | None, CheckedBy(partial(as_time, "remind_at"))] = None
    remind_on: Annotated[dict[str, Any] | None, CheckedBy(check_trigger)] = None
    event_id: Annotated[str | None, CheckedBy(check_event_id)] = None

    def __init__(self, **given: Any) -> None:
        """Take the fields by name. Raises UnknownField or InvalidField."""
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise invalid(error, list(type(self).model_fields)) from None


class Given(NewObservation):
    """What a caller gave to add an observation, each value as it is kept. Made by `parse` alone, and not changed.

    `ttl` is a timedelta or "never". What depends on the type, the settings or the time is still to be decided.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Compile the checks of the fields; None stays None where a field may be left out."""
        fields = {}
        for name, field in cls.model_fields.items():
            schema: CoreSchema = core_schema.any_schema()
            for each in field.metadata:
                if isinstance(each, CheckedBy):
                    schema = each.schema()
            if field.default is None:
                schema = core_schema.nullable_schema(schema)
            fields[name] = core_schema.model_field(schema)
        return core_schema.model_schema(cls, core_schema.model_fields_schema(fields), frozen=True)


_validate = Given.__pydantic_validator__.validate_python


def parse(given: Mapping[str, Any]) -> Given:
    """Return what has to have all fields of a NewObservation, checked; other fields are ignored.

    Raises InvalidInput for the first field that is not acceptable.
    """
    try:
        return _validate(given)  # type: ignore[no-any-return]  # it is compiled from Given
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False):
            if isinstance(refused := problem.get("ctx", {}).get("error"), InvalidInput):
                raise refused from None
        raise


def invalid(error: ValidationError, known: list[str]) -> InvalidField:
    """Return our error for the first problem that pydantic found."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "observation"
    if first["type"] == "extra_forbidden":
        return UnknownField(field, known)
    if first["type"] == "missing":
        return InvalidField(field, "is missing")
    return InvalidField(field, f"{shown(first.get('input'))}: {first['msg'].lower()}")
