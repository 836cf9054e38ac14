"""The fields of an observation: as callers give them, as they are stored, and those that an update may replace."""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic_core import core_schema
from typing_extensions import TypedDict  # typing's own is not enough for pydantic before Python 3.12

from scratchbus.domain.checks import (
    PLAIN_LABEL,
    check_blockers,
    check_content,
    check_dedupe_key,
    check_evidence,
    check_label,
    check_object,
    check_tags,
    check_trigger,
)
from scratchbus.domain.models import CheckedBy, EventId, Guards
from scratchbus.domain.payloads import PAYLOAD_FIELDS, plain
from scratchbus.domain.recurrence import check_every
from scratchbus.domain.time_checks import as_future
from scratchbus.domain.values import (
    MAX_TIMES,
    Confidence,
    Duration,
    Moment,
    Whole,
    check_confidence,
    check_source,
    check_whole,
    duration_of,
)
from scratchbus.errors import InvalidField, UnknownField, shown

_TEXT = core_schema.str_schema(strict=True)
_NOT_BLANK = core_schema.str_schema(strict=True, pattern=r"[^\s\x1c-\x1f]")  # \s and the rest of `str.isspace`
_PORTION = core_schema.float_schema(strict=True, ge=0, le=1)
_COUNT = core_schema.int_schema(strict=True, ge=1, le=MAX_TIMES)
_LABELS = core_schema.list_schema(core_schema.str_schema(strict=True, pattern=f"^{PLAIN_LABEL}$"), strict=True)
_TAGS = core_schema.no_info_after_validator_function(
    list, core_schema.no_info_after_validator_function(dict.fromkeys, _LABELS)
)


def _name_of_type(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidField("type", f"{shown(name)} is not a text")
    return name


_List = Annotated[list[str], Strict(False)]  # a tuple, a set and any other mapping are accepted too
_Dict = Annotated[dict[str, Any], Strict(False)]


class ObservationFields(BaseModel):
    """The fields that an observation gets from the event that adds it.

    A field that callers may give is declared here in its stored form, and in `NewObservation` as they give it.
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


_NUMBERS: Final[dict[str, Callable[[Any], object]]] = {
    "confidence": check_confidence,
    "ttl": duration_of,
    "times": partial(check_whole, "times", maximum=MAX_TIMES),
}
"""The checks of the numbers of a new observation."""


class NewObservation(BaseModel):
    """An observation to add; fields that are left out get their values from its type and the settings.

    `ttl` and `expires_at` exclude each other. `times` is the number of sightings that it represents. `event_id` makes a
    retry safe. `remind_at` is a time, `remind_on` a mapping of `type`, `status` and `tags` that a later event must
    match. `blocked_by` are ids of observations of the same page; it is not active while one of them is open.
    `not_before` is the time at which it becomes active, `every` how often a new one like it is added.
    """

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    type: Annotated[str, CheckedBy(_name_of_type, _TEXT)]
    content: Annotated[str, CheckedBy(partial(check_content, limit=sys.maxsize), _NOT_BLANK)]
    source: Annotated[str | None, CheckedBy(check_source)] = None
    owner: Annotated[str | None, CheckedBy(partial(check_label, "owner"))] = None
    status: str | None = None
    confidence: Annotated[float | None, CheckedBy(check_confidence, _PORTION)] = None
    context: Annotated[_Dict | None, CheckedBy(partial(check_object, "context"))] = None
    tags: Annotated[_List | None, CheckedBy(check_tags, _TAGS)] = None
    ttl: Annotated[Duration | None, CheckedBy(duration_of)] = None
    expires_at: Annotated[Moment | None, CheckedBy(partial(as_future, "expires_at"))] = None
    metadata: Annotated[_Dict | None, CheckedBy(partial(check_object, "metadata"))] = None
    dedupe_key: Annotated[str | None, CheckedBy(check_dedupe_key)] = None
    times: Annotated[int, CheckedBy(partial(check_whole, "times", maximum=MAX_TIMES), _COUNT)] = 1
    evidence: Annotated[_List | None, CheckedBy(check_evidence)] = None
    remind_at: Annotated[Moment | None, CheckedBy(partial(as_future, "remind_at"))] = None
    remind_on: Annotated[_Dict | None, CheckedBy(check_trigger)] = None
    blocked_by: Annotated[_List | None, CheckedBy(check_blockers)] = None
    not_before: Annotated[Moment | None, CheckedBy(partial(as_future, "not_before"))] = None
    every: Annotated[str | None, CheckedBy(check_every)] = None
    event_id: EventId = None

    def __init__(self, /, **given: Any) -> None:
        """Check the types of the fields. Raises UnknownField, InvalidField or InvalidTTL."""
        for name, check in _NUMBERS.items():
            if name in given and isinstance(given[name], bool):
                check(given[name])  # refuses it, where pydantic would take it for 0 or 1
        for name in PAYLOAD_FIELDS:
            if name in given:
                given[name] = plain(name, given[name])
        try:
            self.__pydantic_validator__.validate_python(given, self_instance=self)  # like BaseModel, without its call
        except ValidationError as error:
            raise invalid(error, list(type(self).model_fields)) from None


def invalid(error: ValidationError, known_fields: list[str]) -> InvalidField:
    """Return our error for the first problem that pydantic found."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "observation"
    if first["type"] == "extra_forbidden":
        return UnknownField(field, known_fields)
    if first["type"] == "missing":
        return InvalidField(field, "is missing")
    return InvalidField(field, f"{shown(first.get('input'))}: {first['msg'].lower()}")


class GivenObservation(Guards, NewObservation):
    """The checked arguments of `add`; `ttl` is milliseconds or "never"."""


GUARDS = Guards.model_fields.keys()
"""The names of the arguments of `add` that are not fields of the observation."""


class ObservationPatch(TypedDict, total=False):
    """The keywords of `Page.update` and `Job.update`, each with its type; a field that is left out stays as it is.

    `owner`, `expires_at`, `not_before` and `remind_at` may be None, which removes them. A `status` follows the
    lifecycle of the type; a `reason` says why it changes.
    """

    content: str | BaseModel
    status: str
    reason: str
    owner: str | None
    confidence: float
    context: Mapping[str, Any] | BaseModel
    tags: Sequence[str]
    metadata: Mapping[str, Any] | BaseModel
    expires_at: Moment | None
    blocked_by: Sequence[str]
    not_before: Moment | None
    every: str
    remind_at: Moment | None


UPDATABLE = tuple(ObservationPatch.__annotations__)
"""The fields that `update` may change; id, created_at, source and the rest are set once."""


class Changes(TypedDict, total=False):
    """The fields that an update replaced, with their new values; `status` has its own event."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]  # pydantic requires this attribute

    content: str
    owner: str | None
    confidence: Confidence
    context: dict[str, Any]
    tags: list[str]
    metadata: dict[str, Any]
    expires_at: datetime | None
    blocked_by: list[str]
    not_before: datetime | None
    every: str
    remind_at: datetime | None
