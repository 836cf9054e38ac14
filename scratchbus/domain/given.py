"""What callers give, as values that the rest trusts: checked once, by a validator compiled from their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from scratchbus.domain.values import check_event_id, check_whole
from scratchbus.errors import InvalidInput


class CheckedBy(NamedTuple):
    """How a field is checked: the function returns the value as it is kept, or raises InvalidInput.

    `common` is what nearly all callers give: a schema of values that the function returns as they are. It is tried
    first, since it costs no call.
    """

    check: Callable[[Any], object]
    common: CoreSchema | None = None


class Given(BaseModel):
    """What a caller gave to an operation, each value as it is kept. Made by `parse` alone, and not changed.

    Every field is annotated with how it is checked. None stays None where it is the default.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Compile the checks of the fields."""
        fields = {name: core_schema.model_field(_or_default(field)) for name, field in cls.model_fields.items()}
        return core_schema.model_schema(cls, core_schema.model_fields_schema(fields), frozen=True)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return the fields of this class, checked; what else was given is ignored.

        Raises InvalidInput for the first value that is not acceptable.
        """
        try:
            return cls.__pydantic_validator__.validate_python(given)  # type: ignore[no-any-return]  # compiled from cls
        except ValidationError as error:
            raise refusal_in(error) from None


def checked(field: FieldInfo) -> CoreSchema:
    """Return the compiled form of a field's check; without one, any value is as good."""
    for each in field.metadata:
        if isinstance(each, CheckedBy):
            schema = core_schema.no_info_plain_validator_function(each.check)
            if each.common is None:
                return schema
            return core_schema.union_schema([each.common, schema], mode="left_to_right")
    return core_schema.any_schema()


def _or_default(field: FieldInfo) -> CoreSchema:
    schema = checked(field)
    if field.default is None:
        schema = core_schema.nullable_schema(schema)
    return schema if field.is_required() else core_schema.with_default_schema(schema, default=field.default)


def refusal_in(error: ValidationError) -> Exception:
    """Return the InvalidInput of the first check that failed, as pydantic reports it."""
    for problem in error.errors(include_url=False, include_input=False):
        if isinstance(refused := problem.get("ctx", {}).get("error"), InvalidInput):
            return refused
    return error


EventId = Annotated[str | None, CheckedBy(check_event_id)]
"""A caller's own event id, which makes a retry safe."""


class Guards(Given):
    """What every write takes besides what it is about."""

    event_id: EventId = None
    fence: Annotated[int | None, CheckedBy(partial(check_whole, "fence"))] = None
