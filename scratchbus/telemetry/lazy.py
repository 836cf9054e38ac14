"""Import modules, and compute properties, on first use.

Imports dominate the start of a program, and most programs use only few features of a bus. Modules that are rarely
needed, or slow to import, are therefore declared like this:

    with imported_on_first_use(__name__):
        from scratchbus.commands import erase as erasure

Type checkers and linters read that as any other import; at run time, `erasure` becomes a placeholder. A module that
mypyc compiles has to call `lazy` itself, since its imports do not call `__import__`.

An annotation of a public function names a type of such a module as `erasure.Erasure`: then tools that ask for its
type hints while the program runs find the type.
"""

from __future__ import annotations

import builtins
import os
from _thread import RLock  # the one of `threading`, which need not be imported
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_importing = RLock()
"""Held during a lazy import: threads that import modules which need each other could see them half initialized."""

_declaring = RLock()
"""Held while `imported_on_first_use` replaces `__import__`. Nothing is imported meanwhile, so nobody waits for long."""

for _lock in (_importing, _declaring):  # else a child would wait forever for a thread that imports in its parent
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

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


@contextmanager
def imported_on_first_use(importer: str) -> Iterator[None]:
    """Let the `from package import module` statements of a module, `importer`, that are in the `with` wait.

    Imports of other modules, by other threads, are made as usual meanwhile.
    """
    with _declaring:
        original = builtins.__import__

        def declare(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
            if globals is None or globals.get("__name__") != importer:
                return original(name, globals, locals, fromlist, level)
            return SimpleNamespace(**{each: lazy(f"{name}.{each}") for each in fromlist}) if fromlist else lazy(name)

        builtins.__import__ = declare
        try:
            yield
        finally:
            builtins.__import__ = original


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
