"""Hold a file lock for as long as a thread needs it: a cancelled task releases its own, but its thread continues."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Generic, TypeVar

T = TypeVar("T")


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
