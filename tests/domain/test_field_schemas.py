"""Core schemas built from annotations validate exactly as pydantic's own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from scratchbus.domain.field_schemas import validator_of
from scratchbus.settings import Settings

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 1.0, 0.5, 1.5, 10**30, float("nan"), float("inf"), "", "0", "1", "7.0", "0.8",
    "true", "no", "2h", "1h30m", "never", "-5", "INFO", "Debug", "everysec", "always", "person", "displace", "a name",
    "plain", "x" * 300, "/x", "~", "\ud800", b"1", b"/x", Path("/x"), timedelta(seconds=5), timedelta(0), [], {},
    ["a"], object,
)  # fmt: skip


class Unbuilt(Settings):
    """Settings for which pydantic never builds a schema, so that it cannot stand in for ours."""


def outcome(validate: Any, name: str, value: object) -> object:
    """Return the value that a setting gets, with its type, or the errors."""
    try:
        settings = validate({name: value})
    except ValidationError as error:
        return [
            (each["type"], each["loc"], each["msg"], repr(each.get("ctx", {}).get("error")))
            for each in error.errors(include_url=False)
        ]
    return settings.model_fields_set, [(type(each), repr(each)) for each in settings.__dict__.values()]


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_is_validated_as_by_pydantic(name: str):
    for value in ODD:
        found = outcome(validator_of(Unbuilt), name, value)
        assert repr(found) == repr(outcome(Settings.model_validate, name, value)), value


def test_an_unknown_setting_is_refused():
    assert outcome(validator_of(Unbuilt), "bsu", 1) == outcome(Settings.model_validate, "bsu", 1)


def test_validated_settings_are_frozen():
    with pytest.raises(ValidationError, match="Instance is frozen"):
        validator_of(Unbuilt)({}).bus = "other"  # type: ignore[misc]  # as it should


def test_a_nested_model_has_no_field_schema():
    class Nested(BaseModel):
        inner: Settings

    with pytest.raises(LookupError):
        validator_of(Nested)
