"""Objects with threads that stay in the parent when a process forks: the child's copies begin again."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Threaded(Protocol):
    """An object with threads, and with locks that they may hold."""

    def begin_again(self) -> None:
        """Forget the threads of the parent and what they work on, and replace the locks."""
        ...


_threaded: WeakSet[Threaded] = WeakSet()


def begins_again(threaded: Threaded) -> None:
    """Call `begin_again` of an object in forked children, as long as it exists."""
    _threaded.add(threaded)


def _begin_again() -> None:
    for each in list(_threaded):
        each.begin_again()


os.register_at_fork(after_in_child=_begin_again)
