"""The changes of a live page, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from scratchbus.engine.waits import wait_async
from scratchbus.eventlog.reader import Stop
from scratchbus.views.live_page import Change, Live
from scratchbus.views.reads import PendingChanges


class AsyncPageChanges(PendingChanges):
    """The changes of a view, for any task.

    A time-out or cancellation while waiting for the next change loses none.
    """

    def __init__(self, live: Live, is_open: Callable[[], bool], stop: Stop | None) -> None:
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
