"""The output of `repr` and `dir` in a shell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from scratchbus.domain.position import Position


class _Unquoted(str):
    """A text whose `repr` has no quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def readable(fields: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that are not None; times and positions as text."""
    for name, value in fields:
        if isinstance(value, datetime):
            yield name, _Unquoted(value.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        elif isinstance(value, Position):
            yield name, _Unquoted(value)
        elif value is not None:
            yield name, value


def public_names(value: object, inner: Collection[str] = ()) -> list[str]:
    """Return the public attributes of a value, for `dir`; `inner` are internal ones without an underscore."""
    return sorted(name for name in object.__dir__(value) if not name.startswith("_") and name not in inner)
