"""What changes on a live page, told one change at a time, blocking or in asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Self, TypeVar

from scratchbus.errors import BusClosed, ViewClosed
from scratchbus.eventlog.reader import STOPPABLE_BLOCK_MS, Stop
from scratchbus.views.live_page import Change, ChangesWatcher, Live

Woken = TypeVar("Woken", threading.Event, asyncio.Event)


class _Taking(Generic[Woken]):
    """What both kinds have in common: taking a change, and how long to wait for one."""

    def __init__(self, live: Live, is_open: Callable[[], bool], stop: Stop | None, woken: Woken) -> None:
        self._live = live
        self._is_open = is_open
        self._stop = stop
        self._woken: Woken = woken
        self._is_closed = False
        self._watcher = live.watch(ChangesWatcher(woken))
        self._nap = None if stop is None else STOPPABLE_BLOCK_MS / 1000

    def _take(self) -> Change | None:
        """Return a change that waits to be taken, if one does."""
        self._woken.clear()
        with self._live.lock:
            if self._is_open() and self._watcher.changes:
                return self._watcher.changes.popleft()
        return None

    def _close(self) -> None:
        self._is_closed = True
        self._woken.set()

    def _is_stopped(self) -> bool:
        return self._is_closed or (self._stop is not None and self._stop.is_set())

    def _is_over(self) -> bool:
        """Say whether there are no more changes to come. Raises what has ended them before their time."""
        ended = self._live.ended
        if not self._is_open() or isinstance(ended, BusClosed | ViewClosed):
            return True
        if ended is not None:
            raise ended.with_traceback(None)
        return False


class Changes(_Taking[threading.Event]):
    """The changes of a view, for any thread."""

    def __init__(self, live: Live, is_open: Callable[[], bool], stop: Stop | None) -> None:
        super().__init__(live, is_open, stop, threading.Event())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        """Return the next change; wait for it if there is none."""
        while not self._is_stopped():
            change = self._take()
            if change is not None:
                return change
            if self._is_over():
                break
            self._woken.wait(self._nap)
        raise StopIteration

    def close(self) -> None:
        """Return no more changes."""
        self._close()


class AsyncChanges(_Taking[asyncio.Event]):
    """The changes of a view, for any task. Whoever gives up waiting for one loses none."""

    def __init__(self, live: Live, is_open: Callable[[], bool], stop: Stop | None) -> None:
        super().__init__(live, is_open, stop, asyncio.Event())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        """Return the next change; wait for it if there is none."""
        while not self._is_stopped():
            change = self._take()
            if change is not None:
                return change
            if self._is_over():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(self._nap):
                    await self._woken.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Return no more changes."""
        self._close()
