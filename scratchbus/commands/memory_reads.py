"""Shared reads of the memories that this process caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from scratchbus.commands.copied_errors import copied
from scratchbus.engine.steps import Queued, Step
from scratchbus.errors import ScratchbusError
from scratchbus.readmodel.memory_cache import CachedMemory, M, MemoryCache
from scratchbus.readmodel.scope import Core

T = TypeVar("T")


def fresh_memory(core: Core, cache: MemoryCache[M], page: str) -> Step[CachedMemory[M]]:
    """Return the memory of a page with every acknowledged write; callers that wait together share one read."""
    cached: CachedMemory[M] = yield Queued(core.queues, (page, cache), None, partial(_read_once, core, cache, page))
    return cached


def read_memory(core: Core, cache: MemoryCache[M], page: str, read: Callable[[M], T]) -> Step[T]:
    """Call a function with the fresh memory of a page, under its lock, and return the result."""
    cached = yield from fresh_memory(core, cache, page)
    with cached.lock:
        return read(cached.memory)


def _read_once(
    core: Core, cache: MemoryCache[M], page: str, callers: Sequence[None]
) -> Step[list[CachedMemory[M] | Exception]]:
    try:
        cached = yield from cache.fresh(core.log, page)
    except ScratchbusError as error:
        return [copied(error, None) for _ in callers]
    return [cached] * len(callers)
