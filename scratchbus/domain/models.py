"""Pydantic models of checked values: the arguments of operations, and models made without validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, SchemaValidator, core_schema

from scratchbus.domain.values import check_event_id, check_whole
from scratchbus.errors import InvalidInput


class Immutable(BaseModel):
    """The base class of values; a schema is built with the first value."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class CheckedBy(NamedTuple):
    """The check of a field: a function that returns the value in its stored form, or raises InvalidInput.

    `common` is a schema of values that nearly all callers give and that the function returns unchanged. It is tried
    first, since it saves the call.
    """

    check: Callable[[Any], object]
    common: CoreSchema | None = None


class Given(BaseModel):
    """The checked arguments of an operation, in their stored form. Immutable; only `parse` creates it.

    Every field is annotated with its check. None is accepted where it is the default.
    """

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Compile the checks of the fields."""
        fields = {name: core_schema.model_field(_or_default(field)) for name, field in cls.model_fields.items()}
        return core_schema.model_schema(cls, core_schema.model_fields_schema(fields), frozen=True)

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the fields of this class, checked; other arguments are ignored.

        Raises InvalidInput for the first invalid value.
        """
        try:
            return cls.__pydantic_validator__.validate_python(arguments)  # type: ignore[no-any-return]  # compiled from cls
        except ValidationError as error:
            raise refusal_in(error) from None


def default_of(field: FieldInfo) -> Any:
    """Return a field's default value; `field.get_default` first parses the signature of its factory, which is slow."""
    make: Callable[[], Any] | None = field.default_factory  # type: ignore[assignment]  # ours take no arguments
    return field.default if make is None else make()


def checked(field: FieldInfo) -> CoreSchema:
    """Return the schema of a field's check; without a check, it accepts any value."""
    for each in field.metadata:
        if isinstance(each, CheckedBy):
            schema = core_schema.no_info_plain_validator_function(each.check)
            if each.common is None:
                return schema
            return core_schema.union_schema([each.common, schema], mode="left_to_right")
    return core_schema.any_schema()


def optional_fields(schemas: Mapping[str, CoreSchema]) -> SchemaValidator:
    """Return the validator of a dict with any of these fields, each with its schema."""
    fields = {name: core_schema.typed_dict_field(schema, required=False) for name, schema in schemas.items()}
    return SchemaValidator(core_schema.typed_dict_schema(fields))


def _or_default(field: FieldInfo) -> CoreSchema:
    schema = checked(field)
    if field.default is None:
        schema = core_schema.nullable_schema(schema)
    return schema if field.is_required() else core_schema.with_default_schema(schema, default=field.default)


def refusal_in(error: ValidationError) -> Exception:
    """Return the InvalidInput of the first failed check in pydantic's error; if there is none, pydantic's error."""
    for problem in error.errors(include_url=False, include_input=False):
        if isinstance(refused := problem.get("ctx", {}).get("error"), InvalidInput):
            return refused
    return error


EventId = Annotated[str | None, CheckedBy(check_event_id)]
"""A caller's own event id, which makes a retry safe."""


class Guards(Given):
    """The arguments that every write takes: an event id, and the fence of a claim."""

    event_id: EventId = None
    fence: Annotated[int | None, CheckedBy(partial(check_whole, "fence"))] = None


Model = TypeVar("Model", bound=BaseModel)

_dict, _given, _extra, _private = MODEL_SLOTS = tuple(
    BaseModel.__dict__[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
"""Setters of a model's slots: its values, the names of the given ones, and two that are None."""


def trusted(cls: type[Model], values: dict[str, Any]) -> Model:
    """Return a model with exactly these values, unchecked; every field must be present.

    This is pydantic's `model_construct` without its loop over the fields: events and observations are created by the
    thousand, from values that were checked before.
    """
    model = cls.__new__(cls)
    _dict(model, values)
    _given(model, set())
    _extra(model, None)
    _private(model, None)
    return model
