"""Callers' observations: a whole one as the first argument of `add`, and the changes of an update."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import CoreSchema, SchemaValidator, core_schema

from scratchbus.domain.checks import check_label, check_reason
from scratchbus.domain.models import checked, optional_fields, refusal_in
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import UPDATABLE, NewObservation, ObservationFields
from scratchbus.domain.payloads import type_of_payload
from scratchbus.errors import InvalidField, ReadOnlyField, UnknownField, key_text


def unpack_observation(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of `add`; if the first one is a whole observation, its fields become arguments.

    Other arguments override its fields. Raises InvalidField.
    """
    observation = arguments["type"]
    if isinstance(observation, BaseModel) and not isinstance(observation, NewObservation):
        if arguments["content"] is not None:
            raise InvalidField("content", f"is given twice; it is the {type(observation).__name__}")
        observation = {"type": type_of_payload(observation), "content": observation}
    if not isinstance(observation, NewObservation | Mapping):
        return arguments
    if isinstance(observation, NewObservation):
        fields: Mapping[str, Any] = observation.model_dump(include=observation.model_fields_set)
    else:
        fields = observation
    overrides = {
        name: value for name, value in arguments.items() if value is not None and (name, value) != ("times", 1)
    }
    if fields.get("type") is None:
        raise InvalidField("type", "is missing")
    if fields.get("content") is None and "content" not in overrides:
        raise InvalidField("content", "is missing")
    unknown = {key_text(name): value for name, value in fields.items() if name not in NewObservation.model_fields}
    return {**arguments, **fields, **overrides, "type": fields["type"], "unknown": {**arguments["unknown"], **unknown}}


def check_patch(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to replace, checked. Raises ReadOnlyField, UnknownField or InvalidField."""
    known = Observation.model_fields.keys() | Observation.model_computed_fields.keys()
    for name in changes:
        if name not in UPDATABLE:
            raise (ReadOnlyField if name in known else UnknownField)(key_text(name), UPDATABLE)
    if "reason" in changes and "status" not in changes:
        raise InvalidField("reason", "says why the status changes; give the new status too")
    try:
        return _patch().validate_python(changes)  # type: ignore[no-any-return]  # it is a dict of these
    except ValidationError as error:
        raise refusal_in(error) from None


def _change_of(name: str) -> CoreSchema:
    """Return the check of a field's new value: that of an addition; for an optional field, None removes it."""
    if name == "status":  # unlike in an addition, it may not be None
        return core_schema.no_info_plain_validator_function(partial(check_label, name))
    if name == "reason":
        return core_schema.no_info_plain_validator_function(check_reason)
    schema = checked(NewObservation.model_fields[name])
    return core_schema.nullable_schema(schema) if name in _REMOVABLE else schema


_REMOVABLE = {name for name, field in ObservationFields.model_fields.items() if field.default is None}


@cache
def _patch() -> SchemaValidator:
    """Return the compiled checks of an update."""
    return optional_fields({name: _change_of(name) for name in UPDATABLE})
