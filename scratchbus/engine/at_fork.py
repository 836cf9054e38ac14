"""What happens to objects when this process forks: the child has none of the threads that use them or hold locks."""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Threaded(Protocol):
    """An object with threads, or with locks that other threads may hold."""

    def reset_after_fork(self) -> None:
        """Forget the threads of the parent and their work, and replace the locks."""
        ...


class Locked(Protocol):
    """An object with a lock that is held while it changes."""

    lock: threading.RLock


_threaded: WeakSet[Threaded] = WeakSet()
_locked: WeakSet[Locked] = WeakSet()
_forking = threading.Lock()  # held by the thread that forks
_held: list[threading.RLock] = []  # by that thread


def reset_in_forks(threaded: Threaded) -> None:
    """Call `reset_after_fork` of an object in forked children, as long as it exists."""
    _threaded.add(threaded)


def locked_by_forks(locked: Locked) -> None:
    """Hold the lock of an object while this process forks, as long as the object exists.

    For databases of SQLite: a child waits for ever for a lock that another thread held in SQLite.
    """
    _locked.add(locked)


def _before() -> None:
    _forking.acquire()
    for each in sorted(_locked, key=id):
        each.lock.acquire()
        _held.append(each.lock)


def _after() -> None:
    while _held:
        _held.pop().release()
    _forking.release()


def _in_child() -> None:
    _after()
    for each in list(_threaded):
        each.reset_after_fork()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
