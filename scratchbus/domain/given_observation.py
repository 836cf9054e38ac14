"""What callers give of an observation: all of a new one, or what an update replaces."""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, ValidationError
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
from scratchbus.domain.observation import Observation, ObservationFields
from scratchbus.domain.payloads import PLACES, plain, type_of_payload
from scratchbus.domain.recurrence import check_every
from scratchbus.domain.values import (
    MOST_TIMES,
    CheckedBy,
    Duration,
    EventId,
    Guards,
    Moment,
    check_confidence,
    check_source,
    check_whole,
    checked,
    duration_of,
    refusal_in,
)
from scratchbus.errors import InvalidField, ReadOnlyField, UnknownField, key_text, shown

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


def spread(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of an `add` whose first argument is the whole observation.

    Other arguments replace its fields. Raises InvalidField.
    """
    whole = given["type"]
    if isinstance(whole, BaseModel) and not isinstance(whole, NewObservation):
        if given["content"] is not None:
            raise InvalidField("content", f"is given twice; it is the {type(whole).__name__}")
        whole = {"type": type_of_payload(whole), "content": whole}
    if not isinstance(whole, NewObservation | Mapping):
        return given
    fields = whole.model_dump(include=whole.model_fields_set) if isinstance(whole, NewObservation) else whole
    beside = {name: value for name, value in given.items() if value is not None and (name, value) != ("times", 1)}
    if fields.get("type") is None:
        raise InvalidField("type", "is missing")
    if fields.get("content") is None and "content" not in beside:
        raise InvalidField("content", "is missing")
    unknown = {key_text(name): value for name, value in fields.items() if name not in NewObservation.model_fields}
    return {**given, **fields, **beside, "type": fields["type"], "unknown": {**given["unknown"], **unknown}}


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
