"""A cache bounded by the bytes of its values, shared by threads."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class LRUCache(Generic[T]):
    """A cache of the most recently used values, up to `maximum` bytes; the newest value always stays.

    Threads may share it: `scratchbus up` archives and reads in one process.
    """

    def __init__(self, maximum: int) -> None:
        self._lock = Lock()
        self._max_bytes = maximum
        self._cached: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def __contains__(self, name: str) -> bool:
        return name in self._cached

    def get(self, name: str) -> T | None:
        """Return the value of a name, None if it is not cached."""
        with self._lock:
            if name not in self._cached:
                return None
            self._cached.move_to_end(name)
            return self._cached[name][0]

    def put(self, name: str, value: T, size: int) -> None:
        """Cache the value of a name, which has so many bytes."""
        with self._lock:
            self._drop(name)
            self._cached[name] = value, size
            self._bytes += size
            while self._bytes > self._max_bytes and len(self._cached) > 1:
                _, (_, dropped) = self._cached.popitem(last=False)
                self._bytes -= dropped

    def drop(self, *names: str) -> None:
        """Remove names."""
        with self._lock:
            for name in names:
                self._drop(name)

    def _drop(self, name: str) -> None:
        if name in self._cached:
            self._bytes -= self._cached.pop(name)[1]
