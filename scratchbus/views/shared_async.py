"""The live pages of an open bus: all views of a page share one, which is dropped with the last of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

# blocking only:
# from scratchbus.engine.at_fork import reset_in_forks
# end
from scratchbus.engine.renewal import AsyncKeeper
from scratchbus.engine.steps import Step
from scratchbus.engine.waits import cancel_all
from scratchbus.errors import BusClosed, ViewClosed
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.tail_readers import AsyncFeeds
from scratchbus.readmodel.scope import Core
from scratchbus.views.live_page import LivePage


class _SharedPage:
    """A live page, perhaps still being started, and the number of its views."""

    def __init__(self) -> None:
        self.starting = asyncio.Lock()
        self.users = 0
        self.live: LivePage | None = None


class AsyncLivePages:
    """The live pages of an AsyncBus."""

    def __init__(
        self, core: Core, run: Callable[[Step[Any]], Awaitable[Any]], feeds: AsyncFeeds, keeper: AsyncKeeper
    ) -> None:
        self.core = core
        self._run = run
        self._feeds = feeds
        self._keeper = keeper
        self._shared: dict[str, _SharedPage] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        # asyncio only:
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        # end
        # blocking only:
        # reset_in_forks(self)
        # end

    # blocking only:
    # def reset_after_fork(self) -> None:
    #     """See `Threaded`: the views of the parent are closed."""
    #     pages, self._shared, self._lock = self._shared, {}, threading.Lock()
    #     for page, shared in pages.items():
    #         if shared.live is not None:
    #             shared.live.abandon(ViewClosed(page))
    #
    # end
    async def enter(self, page: str) -> LivePage:
        """Return the live page; its first view starts it. Raises EngineError, LogError or BusClosed."""
        # asyncio only:
        self._forget_other_loops()
        # end
        with self._lock:
            if self._is_closed:
                raise BusClosed
            shared = self._shared.setdefault(page, _SharedPage())
            shared.users += 1
        try:
            async with shared.starting:
                live = shared.live = shared.live or await self._start(page)
            with self._lock:
                if self._shared.get(page) is shared:
                    return live
            self._drop(live, BusClosed())  # it was closed meanwhile
            raise BusClosed
        except BaseException:
            self.leave(page)
            raise

    def leave(self, page: str, live: LivePage | None = None) -> None:
        """Release a page, by a view its live page; after the last view it is no longer followed."""
        with self._lock:
            shared = self._shared.get(page)
            if shared is None or (live is not None and live is not shared.live):
                return  # the bus was closed, or this process is a fork and the live page that of its parent
            shared.users -= 1
            if shared.users:
                return
            del self._shared[page]
        if shared.live is not None:
            self._drop(shared.live, ViewClosed(page))

    async def close(self) -> None:
        """Stop following all pages; reads of their views raise BusClosed from then on."""
        # asyncio only:
        self._forget_other_loops()
        # end
        with self._lock:
            self._is_closed = True
            pages, self._shared = self._shared, {}
        for shared in pages.values():
            if shared.live is not None:
                self._drop(shared.live, BusClosed())
        # asyncio only:
        await asyncio.gather(*cancel_all(self._tasks), return_exceptions=True)
        # end

    async def _start(self, page: str) -> LivePage:
        shard = await self._run(_shard_of(self.core.log, page))
        live = LivePage(self.core, page, self._feeds.feed(shard), self._spawn)
        self._feeds.pump(shard)
        try:
            await self._run(live.start())
        except BaseException:
            live.leave(ViewClosed(page))
            raise
        self._keeper.add(live)
        return live

    def _drop(self, live: LivePage, error: ViewClosed | BusClosed) -> None:
        self._keeper.remove(live)
        live.leave(error)

    def _spawn(self, conversation: Step[None]) -> None:
        # asyncio only:
        task = asyncio.create_task(self._follow(conversation), name="view")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # end
        # blocking only:
        # threading.Thread(target=self._follow, args=(conversation,), name="view", daemon=True).start()
        # end

    # asyncio only:
    def _forget_other_loops(self) -> None:
        """Drop the pages of another event loop: its tasks no longer follow them."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            cancel_all(self._tasks)
            for page, shared in self._shared.items():
                if shared.live is not None:
                    shared.live.abandon(ViewClosed(page))
            self._shared, self._tasks, self._loop = {}, set(), loop

    # end
    async def _follow(self, conversation: Step[None]) -> None:
        with suppress(BusClosed):
            await self._run(conversation)


def _shard_of(log: Log, page: str) -> Step[int]:
    """Return the shard of a page; as a conversation, since an AsyncBus learns the number of shards in its first one."""
    yield from ()
    return log.shard(page)
