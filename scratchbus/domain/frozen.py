"""Lists and dicts that refuse changes, in objects that several readers of a process share."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError(
        "this belongs to an immutable object, which others read too: change a copy, such as copy.deepcopy makes"
    )


class FrozenList(list[Any]):
    """A list that refuses changes; copies and pickles of it are plain lists."""

    __slots__ = ()

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce_ex__(self, protocol: object) -> tuple[type[list[Any]], tuple[list[Any]]]:
        """Return how to copy it."""
        return list, (list(self),)


class FrozenDict(dict[str, Any]):
    """A dict that refuses changes; copies and pickles of it are plain dicts."""

    __slots__ = ()

    update = pop = popitem = clear = setdefault = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __reduce_ex__(self, protocol: object) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """Return how to copy it."""
        return dict, (dict(self),)


_NO_ITEMS: Final = FrozenList()
_NO_NAMES: Final = FrozenDict()


def freeze(model: M) -> M:
    """Replace the lists and dicts in the fields of a model by copies that refuse changes; return the model."""
    values = model.__dict__
    for name in _fields_with_items(type(model)):
        value = values[name]
        if value.__class__ is list:
            values[name] = FrozenList(map(_frozen, value)) if value else _NO_ITEMS
        elif value.__class__ is dict:
            values[name] = _frozen(value) if value else _NO_NAMES
    return model


@cache
def _fields_with_items(kind: type[BaseModel]) -> list[str]:
    """Return the names of the fields whose values may be lists or dicts."""
    simple = {str, int, float, bool, datetime, str | None, int | None, float | None, datetime | None}
    return [name for name, field in kind.model_fields.items() if field.annotation not in simple]


def _frozen(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return FrozenList(map(_frozen, value)) if value else _NO_ITEMS
    if kind is dict:
        return FrozenDict({name: _frozen(each) for name, each in value.items()}) if value else _NO_NAMES
    return value
