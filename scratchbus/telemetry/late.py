"""What is imported, or made, when it is first used.

A program starts in the time that its imports take, and most programs use few of the many things that a bus can do.
Modules that are rarely needed, or slow to import, are therefore named like this:

    if TYPE_CHECKING:
        from scratchbus.commands import erase as erasing
    else:
        erasing = late("scratchbus.commands.erase")

An annotation of a public function names a type of such a module as `erasing.Erasure`: then tools that ask for its
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
"""Held while something is imported late: threads that import modules which need each other get them half made."""

os.register_at_fork(before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release)
# else a child would wait for good for a thread that imports in its parent

_names: dict[str, None] = {}
"""The modules that something stands for."""


class _Late(ModuleType):
    """Stands for a module; what it was asked for it has from then on."""

    def __getattr__(self, name: str) -> Any:
        value = import_from(self.__name__, name)
        setattr(self, name, value)
        return value


def late(name: str) -> Any:
    """Return what stands for a module, and imports it when something in it is first used."""
    _names[name] = None
    return _Late(name)


def import_from(module: str, name: str) -> Any:
    """Import a module, one thread at a time, and return what has this name in it."""
    with _importing:
        return getattr(import_module(module), name)


def import_all() -> None:
    """Import all that is late, for a program that runs for so long that its code may be replaced on disk meanwhile."""
    done: set[str] = set()
    while wanted := [name for name in _names if name not in done]:  # what is imported may name more
        for name in wanted:
            with _importing:
                import_module(name)
        done.update(wanted)


class once(Generic[T]):  # noqa: N801 - it is used as `property` is
    """A property that is made when it is first read; all threads get the same one."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, owner: Any, cls: type) -> T:
        """Return what the owner has from now on under this name."""
        if owner is None:  # asked for on the class
            return self  # type: ignore[return-value]
        made: T = vars(owner).setdefault(self._name, self._make(owner))
        return made
