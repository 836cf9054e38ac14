"""What is imported, or made, when it is first used.

A program starts in the time that its imports take, and most programs use few of the many things that a bus can do.
Modules that are rarely needed, or slow to import, are therefore named like this:

    if TYPE_CHECKING:
        from scratchbus.commands import erase as erasing
    else:
        erasing = late("scratchbus.commands.erase")
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Late(ModuleType):
    """Stands for a module; what it was asked for it has from then on."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def late(name: str) -> Any:
    """Return what stands for a module, and imports it when something in it is first used."""
    return _Late(name)


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
