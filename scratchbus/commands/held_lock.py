"""Take the lock of a session's files, and hold it for as long as a thread needs it, which outlives a cancelled task."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Generic, TypeVar

from scratchbus.commands.scratch_directory import ScratchDirectory
from scratchbus.engine.steps import Fetch, Pause, Step
from scratchbus.errors import FilesUnavailable

T = TypeVar("T")

_NAP = 0.02  # seconds between looks for the lock
_LOCK_CHECKS = 1_500


def take_lock(scratch: ScratchDirectory) -> Step[IO[bytes]]:
    """Wait for the lock of a session's files and return it. Raises FilesUnavailable."""
    for _ in range(_LOCK_CHECKS):
        lock: IO[bytes] | None = yield Fetch(scratch.try_lock)
        if lock is not None:
            return lock
        yield Pause(_NAP)
    raise FilesUnavailable(str(scratch.path), "another process keeps holding the lock")


class WhileLocked(Generic[T]):
    """A call that shares a lock from when it is made until it returns, or is dropped without being called."""

    def __init__(self, lock: IO[bytes], call: Callable[[], T]) -> None:
        self._call = call
        self._descriptor = os.dup(lock.fileno())  # the lock is released with the last of its descriptors

    def __call__(self) -> T:
        """Call it, then release its share of the lock."""
        try:
            return self._call()
        finally:
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = _close
