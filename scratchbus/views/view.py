"""Live views: a page in memory that answers at once and says what changes, blocking or in asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from scratchbus.commands.outcome import no_status, statuses_of
from scratchbus.commands.read import check_limit, filter_of
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import BusPosition, Position
from scratchbus.domain.values import Duration, check_id, check_page, duration_ms
from scratchbus.errors import Behind, InvalidPosition, NotFound, ScratchbusError, ViewClosed, shown
from scratchbus.eventlog.reader import Stop
from scratchbus.projections.filters import Filter, matching
from scratchbus.projections.page_in_memory import LivePage
from scratchbus.readmodel.scope import Core
from scratchbus.views.changes import AsyncChanges, Changes
from scratchbus.views.live_page import Change, Live, Watcher
from scratchbus.views.shared import AsyncLivePages, LivePages

Observations = list[Observation]  # inside a class with a method `list`, that name is taken
Place = Position | BusPosition | Observation | str
"""What says how far a view should be: a position or its text, or what a write has returned."""


class _Reads:
    """What can be read of a live page, at once and without the engine."""

    def __init__(self, core: Core, page: str) -> None:
        self.page = check_page(page)
        self._core = core
        self._live: Live | None = None

    def get(self, id: str) -> Observation | None:
        """Return an observation, or None when it is not on the page, or has been final for `keep_final`.

        `Page.get` still has one of those.
        """
        id, live = check_id(id), self._open()
        with live.lock:
            return live.now().get(id)

    def list(
        self,
        *,
        type: str | None = None,
        status: str | Collection[str] | None = None,
        owner: str | None = None,
        source: str | None = None,
        tags: str | Sequence[str] | None = None,
        text: str | None = None,
        context: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        limit: int | None = 100,
        after: Observation | Position | str | None = None,
    ) -> Observations:
        """Return the observations that match everything given, newest first; `after` is the last item seen before.

        Type, tags and owner are indexed; status and source are looked at on the way; `text` (in the content, any
        case) and `context` look at every observation that the rest leaves. What has been final for `keep_final` is not
        in a view; `Page.list` has it.
        """
        check_limit(limit)
        wanted = filter_of(type, status, owner, source, tags, text, context, since)
        live = self._open()
        with live.lock:
            page = live.now()
            self._check_known(page, wanted)
            return matching(page, wanted, limit, self._below(page, after))

    def active(self, limit: int | None = None) -> Observations:
        """Return the active observations by priority, then newest first."""
        check_limit(limit)
        live = self._open()
        with live.lock:
            return live.now().active(limit)

    @property
    def position(self) -> Position:
        """The place of the last event that the view has folded."""
        return self._open().position

    @property
    def is_live(self) -> bool:
        """Whether what is written is seen at once; not so while the engine is away, or the page is read anew."""
        return self._live is not None and self._live.is_following

    @property
    def trouble(self) -> ScratchbusError | None:
        """What keeps the view from going on at this moment, if anything does."""
        return None if self._live is None else self._live.trouble

    def _open(self) -> Live:
        if self._live is None:
            raise ViewClosed(self.page)
        return self._live

    def _check_known(self, page: LivePage, wanted: Filter) -> None:
        """Raise UnknownType or InvalidField for what no observation can have."""
        registry = self._core.registry
        is_old = wanted.type is not None and wanted.type not in registry.types and page.has(("type", wanted.type))
        if wanted.type is not None and not is_old:
            registry.get(wanted.type)
        if wanted.status is not None and not is_old:
            for status in wanted.status - statuses_of(self._core):
                raise no_status(self._core, "status", status)

    def _below(self, page: LivePage, after: Observation | Position | str | None) -> int | None:
        if after is None:
            return None
        if isinstance(after, Observation):
            return after.added_seq
        if isinstance(after, Position):
            return after.seq
        found = page.get(check_id(after))
        if found is None:
            raise NotFound(f"after: there is no {after} on page {self.page!r}; pass the observation, not its id")
        return found.added_seq

    def _place(self, place: Place) -> Position:
        """Return a position on the shard of the page. Raises InvalidPosition."""
        shard, shards = self._core.log.shard(self.page), self._core.log.shards
        if isinstance(place, str):
            place = BusPosition.parse(place) if "," in place else Position.parse(place)
        if isinstance(place, BusPosition):
            if len(place.shards) != shards:
                raise InvalidPosition(
                    f"{str(place)!r} is a position of a bus with {len(place.shards)} shards, not {shards}"
                )
            return place.shards[shard]._replace(shard=shard)
        position = place.position if isinstance(place, Observation) else place
        if not isinstance(position, Position):
            raise InvalidPosition(
                f"{shown(place)} is not a position; pass the position of an event, or what a write returned"
            )
        if position.shard != shard:
            raise InvalidPosition(f"{str(position)!r} is not on shard {shard}, where page {self.page!r} is")
        return position

    def _seconds(self, timeout: Duration | None) -> float:
        """Return how long to wait. Raises InvalidTTL."""
        ms = None if timeout is None else duration_ms(timeout, "timeout")
        return self._core.fresh.timeout if ms is None else ms / 1000

    def _has(self, position: Position) -> bool:
        live = self._open()
        with live.lock:
            live.now()
            return live.position >= position

    def _behind(self, position: Position, seconds: float) -> Behind:
        live = self._open()
        why = f": {live.trouble}" if live.trouble else "; give it more time"
        return Behind(
            f"the view of page {self.page!r} is at {live.position}, not yet at {position}, after {seconds:g} s{why}"
        )

    def _taking(self) -> tuple[Live, Callable[[], bool]]:
        """Return the live page, and what says whether this view is still open upon it."""
        live = self._open()
        return live, lambda: self._live is live


class View(_Reads):
    """A page in memory, kept up by the log. Get it from `Bus.view`; safe to share between threads."""

    def __init__(self, pages: LivePages, page: str) -> None:
        super().__init__(pages.core, page)
        self._pages = pages

    def wait_for(self, position: Place, timeout: Duration | None = None) -> None:
        """Return once the view has seen the log up to a position, or up to the last event of an observation.

        Raises Behind after `timeout`, which is `fresh_timeout` when it is not given.
        """
        place, seconds = self._place(position), self._seconds(timeout)
        woken, deadline = threading.Event(), time.monotonic() + seconds
        watcher = self._open().watch(Watcher(woken))
        while not self._has(place):
            if not woken.wait(max(0.0, deadline - time.monotonic())):
                raise self._behind(place, seconds)
            watcher.woken.clear()

    def changes(self, stop: Stop | None = None) -> Iterator[Change]:
        """Yield what changes from this call on, until the view is closed or `stop` is set.

        It holds 10,000 changes for one who does not take them. One who is further behind, or whose log was trimmed
        or replaced, gets a change that `is_resync` in place of what is missing.
        """
        return Changes(*self._taking(), stop)

    def close(self) -> None:
        """Read no more; the iterators end."""
        live, self._live = self._live, None
        if live is not None:
            live.wake()
            self._pages.leave(self.page)

    def __enter__(self) -> Self:
        if self._live is None:
            self._live = self._pages.enter(self.page)
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncView(_Reads):
    """A page in memory, kept up by the log. Get it from `AsyncBus.view`; its reads need no `await`."""

    def __init__(self, pages: AsyncLivePages, page: str) -> None:
        super().__init__(pages.core, page)
        self._pages = pages

    async def wait_for(self, position: Place, timeout: Duration | None = None) -> None:  # noqa: ASYNC109 - as in View
        """Return once the view has seen the log up to a position, or up to the last event of an observation.

        Raises Behind after `timeout`, which is `fresh_timeout` when it is not given.
        """
        place, seconds = self._place(position), self._seconds(timeout)
        woken = asyncio.Event()
        watcher = self._open().watch(Watcher(woken))
        try:
            async with asyncio.timeout(seconds):
                while not self._has(place):
                    await woken.wait()
                    watcher.woken.clear()
        except TimeoutError:
            raise self._behind(place, seconds) from None

    def changes(self, stop: Stop | None = None) -> AsyncIterator[Change]:
        """Yield what changes from this call on, until the view is closed or `stop` is set.

        It holds 10,000 changes for one who does not take them. One who is further behind, or whose log was trimmed
        or replaced, gets a change that `is_resync` in place of what is missing.
        """
        return AsyncChanges(*self._taking(), stop)

    async def close(self) -> None:
        """Read no more; the iterators end."""
        live, self._live = self._live, None
        if live is not None:
            live.wake()
            self._pages.leave(self.page)

    async def __aenter__(self) -> Self:
        if self._live is None:
            self._live = await self._pages.enter(self.page)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
