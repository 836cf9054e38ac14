"""The changes of a live page, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from scratchbus.engine.wakeup import wait_async
from scratchbus.errors import BusClosed, ViewClosed
from scratchbus.eventlog.reader import STOPPABLE_BLOCK_MS, Stop
from scratchbus.views.live_page import Change, ChangesWatcher, Live


class AsyncChanges:
    """The changes of a view, for any task.

    Giving up the wait for the next change, by a time-out or a cancellation, loses none.
    """

    def __init__(self, live: Live, is_open: Callable[[], bool], stop: Stop | None) -> None:
        self._live = live
        self._is_open = is_open
        self._stop = stop
        self._woken = asyncio.Event()
        self._is_closed = False
        self._watcher = live.watch(ChangesWatcher(self._woken))
        self._nap = None if stop is None else STOPPABLE_BLOCK_MS / 1000

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        """Return the next change; wait for it if there is none. Raises the error that ended the live page."""
        while not self._is_stopped():
            change = self._take()
            if change is not None:
                return change
            if self._is_over():
                break
            await wait_async(self._woken, self._nap)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration."""
        self._is_closed = True
        self._woken.set()

    def _take(self) -> Change | None:
        """Return the oldest change that was not taken yet, if there is one."""
        self._woken.clear()
        with self._live.lock:
            if self._is_open() and self._watcher.changes:
                return self._watcher.changes.popleft()
        return None

    def _is_stopped(self) -> bool:
        return self._is_closed or (self._stop is not None and self._stop.is_set())

    def _is_over(self) -> bool:
        """Return whether no more changes will come because the view or the bus was closed."""
        ended = self._live.ended
        if not self._is_open() or isinstance(ended, BusClosed | ViewClosed):
            return True
        if ended is not None:
            raise ended.with_traceback(None)
        return False
