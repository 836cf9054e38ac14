"""A forked process has none of its parent's threads: objects that rely on threads are reset in the child."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Threaded(Protocol):
    """An object with threads, and with locks that they may hold."""

    def reset_after_fork(self) -> None:
        """Forget the threads of the parent and their work, and replace the locks."""
        ...


_threaded: WeakSet[Threaded] = WeakSet()


def reset_in_forks(threaded: Threaded) -> None:
    """Call `reset_after_fork` of an object in forked children, as long as it exists."""
    _threaded.add(threaded)


def _reset_all() -> None:
    for each in list(_threaded):
        each.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all)
