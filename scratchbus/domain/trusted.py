"""Making models of values that were checked before."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)

_set = object.__setattr__


def trusted(cls: type[Model], values: dict[str, Any]) -> Model:
    """Return a model with exactly these values, unchecked; every field has to be there.

    What pydantic's `model_construct` does, without its walk over the fields: events and observations are made by the
    thousand, of values that the log or the caller's checks have vouched for.
    """
    model = cls.__new__(cls)
    _set(model, "__dict__", values)
    _set(model, "__pydantic_fields_set__", set())
    _set(model, "__pydantic_extra__", None)
    _set(model, "__pydantic_private__", None)
    return model
