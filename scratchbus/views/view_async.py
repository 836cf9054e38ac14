"""Live views: a page in memory that answers at once and reports changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from math import inf
from typing import Self

from scratchbus.domain.values import Duration
from scratchbus.engine.waits import wait_async
from scratchbus.eventlog.reader import Stop
from scratchbus.views.live_page import Change, LivePage, Watcher
from scratchbus.views.reads import PendingChanges, Reached, ViewReads
from scratchbus.views.shared_async import AsyncLivePages


class AsyncView(ViewReads):
    """A page in memory that follows the log. Get it from `AsyncBus.view`, and enter it with `async with` to start.

    Reads answer at once, without the engine (asyncio: they need no `await`). Safe to share between tasks.
    """

    def __init__(self, pages: AsyncLivePages, page: str) -> None:
        super().__init__(pages.core, page)
        self._pages = pages

    async def wait_for(self, position: Reached, timeout: Duration | None = None) -> None:  # noqa: ASYNC109 - the same parameters as View
        """Return once the view has folded the log up to a position, or up to the last event of an observation.

        Raises Behind after `timeout`, which defaults to `fresh_timeout`; "never" waits without limit.
        """
        target, seconds = self._position_of(position), self._seconds(timeout)
        woken, deadline = asyncio.Event(), time.monotonic() + seconds
        watcher = self._open().watch(Watcher(woken))
        while not self._has(target):
            remaining = None if deadline == inf else max(0.0, deadline - time.monotonic())
            if not await wait_async(woken, remaining):
                raise self._behind(target, seconds)
            watcher.woken.clear()

    def changes(self, stop: Stop | None = None) -> AsyncIterator[Change]:
        """Yield the changes from this call on, until the view is closed or `stop` is set.

        Up to 10,000 changes wait to be taken. A reader that is further behind, or whose log was trimmed or replaced,
        gets one change with `is_resync` instead of the missing ones.
        """
        return AsyncPageChanges(*self._new_iteration(), stop)

    async def close(self) -> None:
        """Close the view; its iterators end, and reads raise ViewClosed."""
        live, self._live = self._live, None
        if live is not None:
            live.wake()
            self._pages.leave(self.page, live)

    async def __aenter__(self) -> Self:
        if self._is_closed():
            live = await self._pages.enter(self.page)
            if self._is_closed():
                self._live = live
            else:  # another task has entered it meanwhile
                self._pages.leave(self.page)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class AsyncPageChanges(PendingChanges):
    """The changes of a view, for any task.

    A time-out or cancellation while waiting for the next change loses none.
    """

    def __init__(self, live: LivePage, is_open: Callable[[], bool], stop: Stop | None) -> None:
        self._woken = asyncio.Event()
        super().__init__(self._woken, live, is_open, stop)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        """Return the next change; wait for it if there is none. Raises the error that ended the live page."""
        while not self._is_stopped():
            change = self._take()
            if change is not None:
                return change
            if self._has_ended():
                break
            await wait_async(self._woken, self._poll_seconds)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration."""
        self._end()
