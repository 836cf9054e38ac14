"""A page held in memory for all views of it in this process: read whole once, then updated from the tail of the log.

The reader of the tail folds new events, a whole batch at a time. The engine is only asked at the start and after a
restart.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar
from weakref import WeakSet

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.engine.renewal import MAX_PAUSE
from scratchbus.engine.retry_limits import backoff
from scratchbus.engine.steps import Pause, Step
from scratchbus.errors import (
    BusClosed,
    CodeTooOld,
    LogError,
    LogGap,
    LogRewound,
    PositionLost,
    RegistryError,
    ScratchbusError,
)
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.lag import read_clock
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.tail import Feed
from scratchbus.projections.page_in_memory import PageInMemory
from scratchbus.readmodel.scope import REGISTRY_AGE, Core, check_registry
from scratchbus.telemetry.logs import stderr_logger
from scratchbus.views.page_loader import fold_item, read_page, replay

CLOCK_AGE = 10.0
"""Seconds after which the engine is asked for its time again."""

logger = stderr_logger()


class Change(NamedTuple):
    """A change of an observation by an event: before and after it, None if it was not on the page.

    If `event` is None, `reason` says why: the event could not be read and the observation is marked as damaged or,
    without an observation, changes are missing here and the view must be read again.
    """

    before: Observation | None
    after: Observation | None
    event: AnyEvent | None
    reason: str = ""

    @property
    def is_resync(self) -> bool:
        """Whether changes are missing here."""
        return self.before is None and self.after is None


class Watcher:
    """A view or iterator whose event is set when the live page changes."""

    def __init__(self, woken: threading.Event | asyncio.Event) -> None:
        self.woken = woken

    def notify(self, change: Change) -> None:
        """Receive a change."""


W = TypeVar("W", bound=Watcher)


class LivePage:
    """One page of a bus that follows the log. Its `lock` guards everything that readers see."""

    max_pause = check_seconds = MAX_PAUSE

    def __init__(self, core: Core, page: str, feed: Feed, spawn: Callable[[Step[None]], object]) -> None:
        self.page = page
        self.shard = feed.shard
        self.lock = threading.Lock()
        self.ended: ScratchbusError | None = None
        self._core = core
        self._feed = feed
        self._spawn: Callable[[Step[None]], object] = spawn
        self._name = page.encode()
        self._in_memory = PageInMemory((), 0)
        self._cursor = Cursor(Position(0, 0, feed.shard))
        self._watchers: WeakSet[Watcher] = WeakSet()  # unused ones disappear
        self._clock_offset_ms = 0.0  # the engine's clock minus the local monotonic clock
        self._clock_read = 0.0
        self._problem: ScratchbusError | None = None
        self._is_following = False  # these three are guarded by the feed's lock
        self._is_busy = True
        self._resyncs = 0

    # -- for readers, with the lock ------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The position of the last folded event."""
        return self._cursor.position

    @property
    def trouble(self) -> ScratchbusError | None:
        """The error that currently keeps it from following the log, if there is one."""
        return self.ended or self._problem or self._feed.trouble

    @property
    def is_following(self) -> bool:
        """Whether it is following the log at this moment."""
        return self._is_following and self.trouble is None

    def now(self) -> PageInMemory:
        """Return the page as of the engine's clock. Raises the error that ended it."""
        if self.ended is not None:
            raise self.ended.with_traceback(None)
        page = self._in_memory
        now = time.monotonic() * 1000 + self._clock_offset_ms
        if now >= page.next_ms or self._cursor.position.ms >= page.next_ms:
            page.advance(max(int(now), self._cursor.position.ms))
        return page

    def watch(self, watcher: W) -> W:
        """Wake a watcher when the page changes, and pass it further changes, as long as it is referenced."""
        with self.lock:
            self._watchers.add(watcher)
        return watcher

    # -- for the feed, with its lock -----------------------------------------------------------------------------------

    def offer(self, items: Sequence[LogEntry]) -> None:
        """Fold new events."""
        if self._is_following:
            self._take(items)

    def resync(self) -> None:
        """Read the log again, since its tail was restarted."""
        self._is_following = False
        self._resyncs += 1
        if not self._is_busy:
            self._is_busy = True
            self._spawn(self._recover())

    # -- starting and resyncing ----------------------------------------------------------------------------------------

    def start(self) -> Step[None]:
        """Read the whole page, then follow the log. Raises EngineError or LogError."""
        self._feed.join(self)
        for is_last in (False, False, True):
            try:
                yield from self.keep()
                yield from self._load()
                yield from self._join()
                return
            except LogRewound:  # replaced while it was read
                if is_last:
                    raise

    def leave(self, error: ScratchbusError) -> None:
        """Stop following; further reads raise this error."""
        self._feed.leave(self)
        self._end(error)

    def abandon(self, error: ScratchbusError) -> None:
        """Raise this error in further reads by a forked child or another event loop, where nothing follows the log."""
        self.lock, self.ended = threading.Lock(), error

    def wake(self) -> None:
        """Wake all watchers."""
        with self.lock:
            self._wake()

    def _end(self, error: ScratchbusError) -> None:
        with self.lock:
            self.ended = error
            self._wake()

    def is_due(self, now: float) -> bool:
        """Return whether the clock is due to be set."""
        return now - self._clock_read > CLOCK_AGE

    def keep(self) -> Step[None]:
        """Set the clock, and load a newer registry if there is one."""
        self._clock_read = time.monotonic()
        engine_ms = yield from read_clock(self._feed.shard)
        self._clock_offset_ms = engine_ms - time.monotonic() * 1000
        if time.monotonic() - self._core.registry_checked > REGISTRY_AGE:
            with suppress(RegistryError):  # the types need newer code, but the page may not
                yield from check_registry(self._core)

    def _load(self, problem: ScratchbusError | None = None) -> Step[None]:
        now_ms = int(time.monotonic() * 1000 + self._clock_offset_ms)
        page, cursor = yield from read_page(self._core.log, self.page, now_ms, self._core.settings.ms("keep_final"))
        with self.lock:
            self._in_memory, self._cursor = page, cursor
            if problem is not None:
                self._notify(Change(None, None, None, str(problem)))
            self._wake()

    def _join(self) -> Step[None]:
        """Read the log to its end and follow the tail, or wait for the tail to start."""
        feed = self._feed
        while True:
            resyncs, cursor = self._resyncs, replace(self._cursor)
            yield from replay(self._core.log, cursor, self._take)
            self._cursor.origin = cursor.origin
            with feed.lock:
                if resyncs == self._resyncs:
                    items = feed.after(self._cursor)
                    if items is not None or not feed.has_begun:
                        self._take(items or ())
                        self._is_following, self._is_busy = items is not None, False
                        return
            yield Pause(0.005)  # the feed is about to read the same events

    def _recover(self) -> Step[None]:
        """Follow again; read the whole page again if the log was replaced."""
        lost: LogError | None = None
        attempt = 0
        while self.ended is None:
            try:
                if lost is not None:
                    yield from self.keep()
                    yield from self._load(lost)
                    lost = None
                yield from self._join()
                self._problem = None
                return
            except CodeTooOld as error:
                self._end(error)
                return
            except BusClosed:
                return
            except ScratchbusError as problem:
                self._problem = problem
                if lost is None and isinstance(problem, PositionLost | LogRewound | LogGap):
                    lost = problem
                    continue
            except Exception as problem:
                self._end(self._stopped(problem))
                return
            yield Pause(backoff(attempt))
            attempt += 1

    def _take(self, items: Sequence[LogEntry]) -> None:
        """Fold whole batches of new events, atomically for readers."""
        with self.lock:
            if self.ended is not None:
                return
            try:
                for item in items:
                    if item.position.seq > self._cursor.position.seq:
                        if item.fields.get(b"page") == self._name:
                            self._fold(item)
                        self._cursor.move_to(item.position, item.id)
            except CodeTooOld as error:
                self.ended = error
            except Exception as problem:  # not the feed's fault, and others follow it too
                self.ended = self._stopped(problem)
            self._wake()

    def _stopped(self, problem: Exception) -> LogError:
        """Return the error that every read raises from now on, since the state of the page is unknown."""
        error = LogError(
            f"the view of page {self.page!r} stopped at {self.position}: {type(problem).__name__}: {problem};"
            " close all views of the page, open them again, and report this"
        )
        error.__cause__ = problem
        logger.error("a view stopped", reason=str(error))
        return error

    def _fold(self, item: LogEntry) -> None:
        (before, after), event, problem = fold_item(self._in_memory, item)
        if before is not after:
            self._notify(Change(before, after, event, problem))

    def _notify(self, change: Change) -> None:
        for watcher in self._watchers:
            watcher.notify(change)

    def _wake(self) -> None:
        for watcher in self._watchers:
            watcher.woken.set()
