"""Follow the events after a position, in an asyncio program."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Self

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.position import in_time
from scratchbus.domain.time_checks import When
from scratchbus.engine.steps import Step
from scratchbus.engine.waits import wait_async
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.entry_filter import EntryFilter
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.reader import MAX_BLOCK_MS, STOPPABLE_BLOCK_MS, Stop
from scratchbus.eventlog.tail import Feed, TailCursor, joined
from scratchbus.eventlog.tail_readers import AsyncFeeds
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()


class AsyncEvents:
    """The events after a position, oldest first, for any task. Cancelling a wait loses no event."""

    def __init__(
        self,
        log: Log,
        run: Callable[[Step[Any]], Awaitable[Any]],
        feeds: AsyncFeeds,
        after: When | None,
        pages: Collection[str] | None,
        entry_filter: EntryFilter,
        follow: bool,
        stop: Stop | None,
    ) -> None:
        self._log = log
        self._run = run
        self._feeds = feeds
        self._after = after
        self._pages = pages
        self._entry_filter = entry_filter
        self._follow = follow
        self._stop = stop
        self._cursors: list[TailCursor] | None = None
        self._raw: list[LogEntry] = []  # of the shards read since all of them were read
        self._items: deque[LogEntry] = deque()
        self._woken = asyncio.Event()
        self._turn = asyncio.Lock()
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyEvent:
        """Return the next event; with `follow`, wait for one."""
        async with self._turn:
            while not self._is_over:
                event = self._take()
                if event is not None:
                    return event
                if self._stop is not None and self._stop.is_set():
                    self._is_over = True
                elif await self._read():
                    await self._wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop the iteration."""
        self._is_over = True
        self._woken.set()

    def _take(self) -> AnyEvent | None:
        """Return an event that was read, if any; log and skip entries that cannot be decoded."""
        while self._items:
            if not self._items[0].is_event:
                LogEntry.decode(self._items)
            event = self._items[0].event
            self._items.popleft()
            if not isinstance(event, Poison):
                return event
            logger.warning("not an event", position=str(event.position), reason=event.reason)
        return None

    async def _read(self) -> bool:
        """Read the next events, in order of time across shards; return whether the end was reached."""
        self._woken.clear()
        is_end = True
        for cursor in await self._open():
            chunk = await self._run(cursor.take())
            self._raw += chunk.items  # no await since the cursor moved: a cancellation loses nothing
            is_end = is_end and chunk.is_end
        self._items += sorted(self._raw, key=lambda item: in_time(item.position))
        self._raw.clear()
        return is_end and not self._items

    async def _open(self) -> list[TailCursor]:
        if self._cursors is None:
            log_cursors = await self._run(cursors(self._log, self._after, self._pages))
            self._cursors = [
                TailCursor(self._feed(cursor.position.shard), cursor, self._entry_filter, self._woken.set)
                for cursor in log_cursors
            ]
        return self._cursors

    def _feed(self, shard: int) -> Feed:
        return self._feeds.feed(shard) if self._follow else Feed(self._log, shard)  # not read by a task

    async def _wait(self) -> None:
        """Wait until there may be more events, or it is time to check. Raises the error that stopped a tail."""
        if not self._follow:
            self._is_over = True
            return
        ms, tail_cursors = MAX_BLOCK_MS if self._stop is None else STOPPABLE_BLOCK_MS, self._cursors or []
        for tail_cursor in tail_cursors:
            if tail_cursor.feed.trouble is not None:
                raise tail_cursor.feed.trouble.with_traceback(None)
        with joined([(tail_cursor.feed, tail_cursor) for tail_cursor in tail_cursors]):
            if not any(tail_cursor.feed.is_past(tail_cursor.cursor.position) for tail_cursor in tail_cursors):
                await wait_async(self._woken, ms / 1000)


follow_events = AsyncEvents
"""Returns the events after a position, oldest first; with `follow`, waits for new ones until `stop` is set."""
