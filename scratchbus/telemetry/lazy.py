"""Import modules, and compute properties, on first use.

Imports dominate the start of a program, and most programs use only few features of a bus. Modules that are rarely
needed, or slow to import, are therefore declared like this:

    if TYPE_CHECKING:
        from scratchbus.commands import erase as erasure
    else:
        erasure = lazy("scratchbus.commands.erase")

An annotation of a public function names a type of such a module as `erasure.Erasure`: then tools that ask for its
type hints while the program runs find the type.
"""

from __future__ import annotations

import os
from _thread import RLock  # the one of `threading`, which need not be imported
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_importing = RLock()
"""Held during a lazy import: threads that import modules which need each other could see them half initialized."""

os.register_at_fork(before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release)
# else a child would wait forever for a thread that imports in its parent

_names: dict[str, None] = {}
"""The modules with a placeholder."""


class _Lazy(ModuleType):
    """A placeholder for a module; it caches each attribute on first access."""

    def __getattr__(self, name: str) -> Any:
        value = import_from(self.__name__, name)
        setattr(self, name, value)
        return value


def lazy(name: str) -> Any:
    """Return a placeholder for a module that imports it on first use."""
    _names[name] = None
    return _Lazy(name)


def import_from(module: str, name: str) -> Any:
    """Return what `from module import name` imports, for one thread at a time."""
    with _importing:
        return getattr(__import__(module, fromlist=(name,)), name)  # a module of a package is imported too


def import_all() -> None:
    """Import all lazy modules, for a long-running program whose code may be replaced on disk."""
    imported: set[str] = set()
    while pending := [name for name in _names if name not in imported]:  # an import may declare more
        for name in pending:
            with _importing:
                import_module(name)
        imported.update(pending)


class once(Generic[T]):  # noqa: N801 - it is used as `property` is
    """A property computed on first read; all threads get the same value."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, owner: Any, cls: type) -> T:
        """Compute the value, and store it in the owner under this name."""
        if owner is None:  # asked for on the class
            return self  # type: ignore[return-value]
        value: T = vars(owner).setdefault(self._name, self._make(owner))
        return value
