"""Shared reads of the memories that this process caches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TypeVar

from scratchbus.commands.copied_errors import copied
from scratchbus.engine.steps import Queued, Step
from scratchbus.errors import ScratchbusError
from scratchbus.readmodel.memory_cache import CachedMemory, M, MemoryCache
from scratchbus.readmodel.scope import Core

T = TypeVar("T")


def shared_read(core: Core, key: Hashable, read: Callable[[], Step[T]]) -> Step[T]:
    """Return the result of a read; callers that wait under the same key together share one."""
    found: T = yield Queued(core.queues, key, None, partial(_read_once, read))
    return found


def fresh_memory(core: Core, cache: MemoryCache[M], page: str) -> Step[CachedMemory[M]]:
    """Return the memory of a page with every acknowledged write."""
    return shared_read(core, (page, cache), partial(cache.fresh, core.log, page))


def read_memory(core: Core, cache: MemoryCache[M], page: str, read: Callable[[M], T]) -> Step[T]:
    """Call a function with the fresh memory of a page, under its lock, and return the result."""
    cached = yield from fresh_memory(core, cache, page)
    with cached.lock:
        return read(cached.memory)


def _read_once(read: Callable[[], Step[T]], callers: Sequence[None]) -> Step[list[T | Exception]]:
    try:
        found = yield from read()
    except ScratchbusError as error:
        return [copied(error, None) for _ in callers]
    return [found] * len(callers)
