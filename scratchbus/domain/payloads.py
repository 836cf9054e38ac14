"""Pydantic models as the payload of observations: as JSON in the content, or in the context or metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any, Literal, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

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


class _Form(NamedTuple):
    """How a model is written: with the aliases of its fields, and without what it only computes."""

    by_alias: bool = False
    round_trip: bool = False


_FORMS = [_Form(), _Form(by_alias=True), _Form(round_trip=True), _Form(by_alias=True, round_trip=True)]
_forms: WeakKeyDictionary[type[BaseModel], dict[bool, _Form]] = WeakKeyDictionary()
"""The form of each model, for the content and for other fields."""


def plain(place: str, value: object) -> Any:
    """Return a value in its stored form: for a model, its JSON, as text for the content. Raises InvalidField.

    The first value of a model decides in which form the model can be read back, by `payload`.
    """
    if not isinstance(value, BaseModel):
        return value
    forms, is_content = _forms.setdefault(type(value), {}), place == "content"
    form = forms.get(is_content)
    if form is None:
        read = {form: _read_back(place, value, form) for form in _FORMS}
        form = next((form for form in _FORMS if read[form] == value), None)
        form = form or next((form for form in _FORMS if read[form] is not None), None)
        if form is not None:
            forms[is_content] = form
    return _written(place, value, form or _FORMS[0])


def _written(place: str, model: BaseModel, form: _Form) -> Any:
    try:
        if place != "content":
            return model.model_dump(mode="json", by_alias=form.by_alias, round_trip=form.round_trip)
        text = model.model_dump_json(by_alias=form.by_alias, round_trip=form.round_trip)
        if "null" in text:
            fields = model.model_dump(mode="json", by_alias=form.by_alias, round_trip=form.round_trip)
            _check_numbers(place, fields, from_json(text))
    except ValueError as problem:  # pydantic's PydanticSerializationError too
        raise InvalidField(place, f"cannot be written as JSON: {problem}") from None
    return text


def _read_back(place: str, model: BaseModel, form: _Form) -> BaseModel | None:
    """Return what a model is read as in a form, None if it cannot be read."""
    try:
        return read_payload(_written(place, model, form), type(model), place)
    except Exception:  # also what a validator of the user's raises
        return None


def _check_numbers(place: str, value: Any, written: Any) -> None:
    """Raise InvalidField for a number of which JSON made null."""
    match value:
        case float() if written is None and not isfinite(value):
            raise InvalidField(place, f"{value} is not a number in JSON; leave it out, or write it as a text")
        case dict() if isinstance(written, dict):
            for name, each in value.items():
                _check_numbers(f"{place}.{name}", each, written.get(name))
        case list() if isinstance(written, list):
            for each, its_text in zip(value, written, strict=False):
                _check_numbers(place, each, its_text)


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
