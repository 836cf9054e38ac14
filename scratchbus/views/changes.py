"""The changes of a live page, one at a time."""

# Generated from changes_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from scratchbus.engine.waits import wait
from scratchbus.eventlog.reader import Stop
from scratchbus.views.live_page import Change, Live
from scratchbus.views.reads import PendingChanges


class PageChanges(PendingChanges):
    """The changes of a view, for any thread.

    A time-out or cancellation while waiting for the next change loses none.
    """

    def __init__(self, live: Live, is_open: Callable[[], bool], stop: Stop | None) -> None:
        self._woken = threading.Event()
        super().__init__(self._woken, live, is_open, stop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        """Return the next change; wait for it if there is none. Raises the error that ended the live page."""
        while not self._is_stopped():
            change = self._take()
            if change is not None:
                return change
            if self._has_ended():
                break
            wait(self._woken, self._poll_seconds)
        raise StopIteration

    def close(self) -> None:
        """End the iteration."""
        self._end()
