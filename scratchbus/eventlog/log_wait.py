"""Waits of a long-running loop for new events, which end as soon as the loop is to stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from scratchbus.domain.position import Position
from scratchbus.engine.waits import StopSignal
from scratchbus.errors import BusClosed
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.reader import MAX_BLOCK_MS, STOPPABLE_BLOCK_MS, wait

if TYPE_CHECKING:
    from scratchbus.eventlog.tail_readers import Feeds


class LogWait:
    """Waits of one thread for new events, with a driver of its own; any thread may end them.

    `can_be_ended` is False if nobody would call `end`, or if the engine would not notice; then each wait is short.
    """

    def __init__(self, log: Log, feeds: Feeds, *, can_be_ended: bool) -> None:
        self._log = log
        self._feeds = feeds
        self._reader = feeds.new_reader()
        self._seconds = (MAX_BLOCK_MS if can_be_ended else STOPPABLE_BLOCK_MS) / 1000
        self._woken = threading.Event()
        self._has_ended = False

    def wait(self, behind: Mapping[int, Position]) -> None:
        """Wait until a shard may have an event after its position here, or for a few seconds. Raises BusClosed."""
        woken = self._woken = threading.Event()
        try:
            if self._has_ended:
                return
            if self._log.is_spread and len(behind) > 1:
                self._feeds.wait_behind(behind, self._seconds, woken)
            else:
                self._reader.run(wait(self._log, behind, self._seconds))
        except BusClosed:
            if not self._has_ended:
                raise

    def end(self) -> None:
        """End the wait at once, and all later ones."""
        self._has_ended = True
        self._woken.set()
        self._reader.break_off()

    def close(self) -> None:
        """End the wait; it raises BusClosed."""
        self._reader.break_off()


@contextmanager
def waiting(log: Log, feeds: Feeds, stop: threading.Event) -> Iterator[LogWait]:
    """Wait for new events inside; a StopSignal ends even a long wait at once."""
    log_wait = LogWait(log, feeds, can_be_ended=feeds.can_break_off and isinstance(stop, StopSignal))
    feeds.waits.add(log_wait)
    try:
        with stop.calling(log_wait.end) if isinstance(stop, StopSignal) else nullcontext():
            yield log_wait
    finally:
        feeds.waits.discard(log_wait)
        log_wait.close()
