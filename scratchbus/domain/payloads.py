"""Pydantic models as the payload of observations: as JSON in the content, or in the context or metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from scratchbus.errors import InvalidField, shown

Model = TypeVar("Model", bound=BaseModel)

ModelClass = type[Model]

PayloadField = Literal["content", "context", "metadata"]
"""The fields that may hold a payload."""

PAYLOAD_FIELDS = ("content", "context", "metadata")

_types: dict[type[BaseModel], str] = {}


def payload_of(type: str) -> Callable[[ModelClass[Model]], ModelClass[Model]]:
    """Return a decorator that declares a pydantic model the payload of an observation type: `page.add(Model(…))`."""

    def decorate(model: ModelClass[Model]) -> ModelClass[Model]:
        _types[model] = type
        return model

    return decorate


def type_of_payload(payload: BaseModel) -> str:
    """Return the observation type whose payload is this model, or one it inherits from. Raises InvalidField."""
    for cls in type(payload).__mro__:
        if cls in _types:
            return _types[cls]
    name = type(payload).__name__
    raise InvalidField(
        "type",
        f"{name} is not the payload of a type; decorate it with @payload_of(type), or write add(type, {name}(…))",
    )


def plain(place: str, value: object) -> Any:
    """Return a value in its stored form: for a model, its JSON, as text for the content. Raises InvalidField.

    A model that cannot read its computed fields back, for one, is stored without them.
    """
    if not isinstance(value, BaseModel):
        return value
    written = _written(place, value)
    try:
        read_payload(written, type(value), place)
    except InvalidField:
        return _written(place, value, round_trip=True)
    return written


def _written(place: str, value: BaseModel, *, round_trip: bool = False) -> Any:
    try:
        fields = value.model_dump(mode="json", by_alias=True, round_trip=round_trip)
        content = value.model_dump_json(by_alias=True, round_trip=round_trip) if place == "content" else None
    except ValueError as problem:  # pydantic's PydanticSerializationError too
        raise InvalidField(place, f"cannot be written as JSON: {problem}") from None
    _check_numbers(place, fields)
    return fields if content is None else content


def _check_numbers(place: str, value: Any) -> None:
    """Raise InvalidField for a number that JSON does not have, of which pydantic would make null."""
    match value:
        case float() if not isfinite(value):
            raise InvalidField(place, f"{value} is not a number in JSON; leave it out, or write it as a text")
        case dict():
            for name, each in value.items():
                _check_numbers(f"{place}.{name}", each)
        case list():
            for each in value:
                _check_numbers(place, each)


def least_size(value: dict[Any, Any] | Sequence[Any], sizes: dict[int, int]) -> int:
    """Return the least size of an object or list in JSON, in linear time, although a shared part counts each time.

    `sizes` has the sizes of the objects and lists measured before, by identity.
    """
    size = sizes.get(id(value))
    if size is None:
        size = sizes[id(value)] = 2  # in a value that contains itself
        children: Iterable[Any] = value
        if isinstance(value, dict):
            size += sum(len(key) + 3 for key in value if isinstance(key, str))
            children = value.values()
        for child in children:
            if isinstance(child, str):
                size += len(child) + 2
            elif isinstance(child, dict | list | tuple):
                size += least_size(child, sizes)
            else:
                size += 1
        sizes[id(value)] = size
    return size


def read_payload(value: Any, model: type[Model], place: str) -> Model:
    """Return the payload in a field of an observation or event. Raises InvalidField unless it fits the model."""
    if value is None:
        raise InvalidField(place, "has no value here; only observations and `added` events have one")
    try:
        return model.model_validate_json(value) if place == "content" else model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, (place, *first["loc"])))
        raise InvalidField(
            path, f"{shown(first['input'])} does not fit {model.__name__}: {first['msg'].lower()}"
        ) from None
