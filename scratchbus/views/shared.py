"""The live pages of an open bus: all views of a page share one, which is dropped with the last of them."""

# Generated from shared_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from scratchbus.engine.at_fork import reset_in_forks
from scratchbus.engine.renewal import Keeper
from scratchbus.engine.steps import Step
from scratchbus.errors import BusClosed, ViewClosed
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.tail_readers import Feeds
from scratchbus.readmodel.scope import Core
from scratchbus.views.live_page import LivePage


class _SharedPage:
    """A live page, perhaps still being started, and the number of its views."""

    def __init__(self) -> None:
        self.starting = threading.Lock()
        self.users = 0
        self.live: LivePage | None = None


class LivePages:
    """The live pages of a Bus."""

    def __init__(self, core: Core, run: Callable[[Step[Any]], Any], feeds: Feeds, keeper: Keeper) -> None:
        self.core = core
        self._run = run
        self._feeds = feeds
        self._keeper = keeper
        self._shared: dict[str, _SharedPage] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """See `Threaded`: the views of the parent are closed."""
        pages, self._shared, self._lock = self._shared, {}, threading.Lock()
        for page, shared in pages.items():
            if shared.live is not None:
                shared.live.abandon(ViewClosed(page))

    def enter(self, page: str) -> LivePage:
        """Return the live page; its first view starts it. Raises EngineError, LogError or BusClosed."""
        with self._lock:
            if self._is_closed:
                raise BusClosed
            shared = self._shared.setdefault(page, _SharedPage())
            shared.users += 1
        try:
            with shared.starting:
                live = shared.live = shared.live or self._start(page)
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

    def close(self) -> None:
        """Stop following all pages; reads of their views raise BusClosed from then on."""
        with self._lock:
            self._is_closed = True
            pages, self._shared = self._shared, {}
        for shared in pages.values():
            if shared.live is not None:
                self._drop(shared.live, BusClosed())

    def _start(self, page: str) -> LivePage:
        shard = self._run(_shard_of(self.core.log, page))
        live = LivePage(self.core, page, self._feeds.feed(shard), self._spawn)
        self._feeds.pump(shard)
        try:
            self._run(live.start())
        except BaseException:
            live.leave(ViewClosed(page))
            raise
        self._keeper.add(live)
        return live

    def _drop(self, live: LivePage, error: ViewClosed | BusClosed) -> None:
        self._keeper.remove(live)
        live.leave(error)

    def _spawn(self, conversation: Step[None]) -> None:
        threading.Thread(target=self._follow, args=(conversation,), name="view", daemon=True).start()

    def _follow(self, conversation: Step[None]) -> None:
        with suppress(BusClosed):
            self._run(conversation)


def _shard_of(log: Log, page: str) -> Step[int]:
    """Return the shard of a page; as a conversation, since a Bus learns the number of shards in its first one."""
    yield from ()
    return log.shard(page)
