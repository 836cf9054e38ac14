"""Readers of the tails of a bus: threads for a Bus, tasks for an AsyncBus, with one blocking connection per shard.

A thread that waits for the only shard it follows reads the tail itself, for all other followers too; nothing is
faster. For a follower of several shards, or one that does not wait, a dedicated thread reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from scratchbus.domain.position import Position
from scratchbus.engine.at_fork import reset_in_forks
from scratchbus.engine.lazy_packages import asyncio
from scratchbus.engine.retry_limits import backoff
from scratchbus.engine.steps import Step
from scratchbus.engine.waits import cancel_all, wait_async
from scratchbus.errors import BusClosed, LogError, ScratchbusError
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.log_wait import LogWait
from scratchbus.eventlog.reader import MAX_BLOCK_MS, STOPPABLE_BLOCK_MS
from scratchbus.eventlog.tail import Feed, joined
from scratchbus.telemetry.logs import stderr_logger

if TYPE_CHECKING:
    from scratchbus.engine.drivers import Engine
    from scratchbus.engine.drivers_async import AsyncEngine

PAUSE = 0.0001
"""Seconds per follower between two reads of a dedicated thread.

Followers are then woken once for everything that arrived meanwhile, which leaves the cores to publishers. An event
after a quiet period is not delayed.
"""

logger = stderr_logger()

T = TypeVar("T")


def _as_log_error(problem: Exception) -> ScratchbusError:
    """Return the error that followers of a tail get when it cannot be read; an unexpected one is wrapped."""
    if isinstance(problem, ScratchbusError):
        return problem
    return LogError(f"the log cannot be read: {type(problem).__name__}: {problem}; retrying. Please report this")


class _Alarm:
    """A follower that only needs to be woken."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.resync = wake

    def offer(self, items: Sequence[LogEntry]) -> None:
        self.resync()


class Feeds:
    """The tails of a Bus, by shard, and its `waits` for events after stored positions.

    `new_reader` makes a driver for a call that waits on the log; not every engine notices that one is broken off.
    """

    def __init__(
        self, log: Log, reader: Engine, new_reader: Callable[[], Engine], *, can_break_off: bool = True
    ) -> None:
        self._log = log
        self._reader = reader
        self.new_reader = new_reader
        self.can_break_off = can_break_off
        self.waits = set[LogWait]()
        self._closed = threading.Event()
        self.reset_after_fork()
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """See `Threaded`."""
        self._feeds: dict[int, _TailReader] = {}
        self._lock = threading.Lock()

    def feed(self, shard: int) -> Feed:
        """Return the tail of a shard."""
        return self._tail_reader(shard).feed

    def pump(self, shard: int) -> None:
        """Read the tail of a shard in a dedicated thread, also while no one waits for it."""
        tail_reader = self._tail_reader(shard)
        with self._lock:
            if tail_reader.pump is None:
                pump = threading.Thread(target=self._pump, args=(tail_reader,), name=f"feed {shard}", daemon=True)
                pump.start()
                tail_reader.pump = pump

    def wait(self, shards: Collection[int], woken: threading.Event, seconds: float) -> None:
        """Wait until `woken` is set, for this many seconds at most; read the tails of these shards meanwhile.

        Raises EngineError if this thread was the reader, and the engine did not answer.
        """
        if len(shards) == 1:
            tail_reader = self._tail_reader(next(iter(shards)))
            if tail_reader.pump is None:
                tail_reader.lead_or_wait(woken, seconds)
                return
        for shard in shards:
            self.pump(shard)
        if not self._closed.is_set():
            woken.wait(seconds)

    def run(self, conversation: Step[T]) -> T:
        """Run a conversation that may block for long, on connections without a time-out. Raises BusClosed."""
        return self._reader.run(conversation)

    def wait_behind(self, behind: Mapping[int, Position], seconds: float, woken: threading.Event | None = None) -> bool:
        """Wait until a shard may have an event after its position here, or `woken` is set; return whether one may."""
        woken = woken or threading.Event()
        feeds, alarm = [self.feed(shard) for shard in behind], _Alarm(woken.set)
        with joined([(feed, alarm) for feed in feeds]):
            if any(map(Feed.is_past, feeds, behind.values())):
                return True
            self.wait(behind, woken, seconds)
        return woken.is_set()

    def close(self) -> None:
        """Stop reading, and wake all followers."""
        self._closed.set()
        self._reader.break_off()
        for wait in list(self.waits):
            wait.close()
        for tail_reader in list(self._feeds.values()):
            tail_reader.feed.resync()

    def _tail_reader(self, shard: int) -> _TailReader:
        with self._lock:
            tail_reader = self._feeds.get(shard)
            if tail_reader is None:
                tail_reader = self._feeds[shard] = _TailReader(Feed(self._log, shard), self._reader)
            return tail_reader

    def _pump(self, tail_reader: _TailReader) -> None:
        attempt = 0
        with tail_reader.leading:
            while not self._closed.is_set():
                try:
                    tail_reader.engine.run(tail_reader.feed.advance(MAX_BLOCK_MS))
                    if attempt:
                        logger.info("going on")
                    attempt, tail_reader.feed.trouble = 0, None
                    self._closed.wait(PAUSE * tail_reader.feed.followers)
                except Exception as problem:  # followers must not wait for a thread that has died
                    tail_reader.feed.trouble = _as_log_error(problem)
                    if self._closed.is_set():
                        return
                    if attempt == 0:
                        logger.warning("the log cannot be read; trying again", reason=str(problem))
                    self._closed.wait(backoff(attempt))
                    attempt += 1


class _TailReader:
    """A tail, its connection, and the threads that wait for it, one of which reads for all."""

    def __init__(self, feed: Feed, engine: Engine) -> None:
        self.feed = feed
        self.engine = engine
        self.pump: threading.Thread | None = None
        self.leading = threading.Lock()
        self._waiting: set[threading.Event] = set()

    def lead_or_wait(self, woken: threading.Event, seconds: float) -> None:
        self._waiting.add(woken)  # before the try: either it succeeds, or the leader wakes it when it ends
        try:
            if not self.leading.acquire(blocking=False):
                woken.wait(seconds)
                return
        finally:
            self._waiting.discard(woken)
        try:
            if not woken.is_set():
                self.engine.run(self.feed.advance(min(STOPPABLE_BLOCK_MS, max(1, int(seconds * 1000)))))
        finally:
            self.leading.release()
            for next_reader in list(self._waiting)[:1]:
                next_reader.set()


class AsyncFeeds:
    """The tails of an AsyncBus, by shard; event loops may follow them one after another, not at once."""

    def __init__(self, log: Log, reader: AsyncEngine) -> None:
        self._log = log
        self._reader = reader
        self._feeds: dict[int, tuple[Feed, asyncio.Task[None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def feed(self, shard: int) -> Feed:
        """Return the tail of a shard, which a task reads from now on. Raises BusClosed."""
        if self._is_closed:
            raise BusClosed
        self._forget_other_loops()
        if shard not in self._feeds:
            feed = Feed(self._log, shard)
            self._feeds[shard] = feed, asyncio.create_task(self._pump(feed), name=f"feed {shard}")
        return self._feeds[shard][0]

    def pump(self, shard: int) -> None:
        """Do nothing: a task reads the tail of every shard that is followed."""

    async def wait(self, shards: Collection[int], woken: asyncio.Event, seconds: float) -> None:
        """Wait until `woken` is set, for this many seconds at most."""
        await wait_async(woken, seconds)

    async def run(self, conversation: Step[T]) -> T:
        """Run a conversation that may block for long, on connections without a time-out. Raises BusClosed."""
        return await self._reader.run(conversation)

    async def wait_behind(
        self, behind: Mapping[int, Position], seconds: float, woken: asyncio.Event | None = None
    ) -> bool:
        """Wait until a shard may have an event after its position here, or `woken` is set; return whether one may."""
        woken = woken or asyncio.Event()
        feeds, alarm = [self.feed(shard) for shard in behind], _Alarm(woken.set)
        with joined([(feed, alarm) for feed in feeds]):
            if any(map(Feed.is_past, feeds, behind.values())):
                return True
            await wait_async(woken, seconds)
        return woken.is_set()

    async def close(self) -> None:
        """Stop reading, and wake all followers."""
        self._is_closed = True
        self._forget_other_loops()
        await self._reader.break_off()
        await asyncio.gather(*cancel_all(task for _, task in self._feeds.values()), return_exceptions=True)
        for feed, _ in self._feeds.values():
            feed.resync()

    def _forget_other_loops(self) -> None:
        """Drop the tails of another event loop: its tasks no longer read them."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            cancel_all(task for _, task in self._feeds.values())
            self._feeds, self._loop = {}, loop

    async def _pump(self, feed: Feed) -> None:
        attempt = 0
        while True:
            try:
                await self._reader.run(feed.advance(MAX_BLOCK_MS))
                if attempt:
                    logger.info("going on")
                attempt, feed.trouble = 0, None
                await asyncio.sleep(0)  # let the followers that were woken run first
            except Exception as problem:  # followers must not wait for a task that has died
                feed.trouble = _as_log_error(problem)
                if self._is_closed:
                    return
                if attempt == 0:
                    logger.warning("the log cannot be read; trying again", reason=str(problem))
                await asyncio.sleep(backoff(attempt))
                attempt += 1
