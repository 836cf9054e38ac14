"""The parts of a view shared by threads and tasks: its reads, and its pending changes."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

from scratchbus.commands.observations import no_status, statuses_of
from scratchbus.commands.read import seq_on_page
from scratchbus.domain.checks import check_limit
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import BusPosition, Position
from scratchbus.domain.values import Duration, check_id, check_page, duration_seconds
from scratchbus.errors import Behind, BusClosed, InvalidPosition, NotFound, ScratchbusError, ViewClosed, shown
from scratchbus.eventlog.cursor import check_shards
from scratchbus.eventlog.reader import STOPPABLE_BLOCK_MS, Stop, check_stop
from scratchbus.projections.filters import Filter, FilterKeywords, count_matching, filter_of, list_arguments, matching
from scratchbus.projections.page_in_memory import PageInMemory
from scratchbus.readmodel.scope import Core
from scratchbus.views.live_page import Change, LivePage, Watcher

T = TypeVar("T")

Observations = list[Observation]  # inside a class with a method `list`, that name is taken
Reached = Position | BusPosition | Observation | str
"""A point for a view to reach: a position or its text, or the observation that a write returned."""

MAX_BEHIND = 10_000
"""The most pending changes of an iterator."""


class ViewReads:
    """The reads of a view: immediate, and without the engine."""

    def __init__(self, core: Core, page: str) -> None:
        self.page = check_page(page)
        self._core = core
        self._live: LivePage | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of page {self.page!r}{', not open' if self._live is None else ''}>"

    def get(self, id: str) -> Observation | None:
        """Return an observation, or None if it is not on the page, or has been final for `keep_final`.

        `Page.get` still finds the latter.
        """
        id, live = check_id(id), self._open()
        with live.lock:
            return live.now().get(id)

    def list(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        limit: int | None = 100,
        after: Observation | Position | str | None = None,
        **narrow: Unpack[FilterKeywords],
    ) -> Observations:
        """Return the observations that match all filters, newest first; `after` is the last item of the previous call.

        The filters are those of `Page.list`, and use the view's own indexes. At most `limit` are returned; `count`
        tells how many more match. Observations that have been final for `keep_final` are not in a view; `Page.list`
        has them. A mapping `filters` stands for keywords of the same names. Raises UnknownField, UnknownType or
        InvalidField for a value that no observation can have, and NotFound if `after` is not on the page.
        """
        return self._read(matching, *list_arguments(filters, narrow, limit, after))

    def count(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        after: Observation | Position | str | None = None,
        limit: int | None = None,
        **narrow: Unpack[FilterKeywords],
    ) -> int:
        """Return how many observations match the filters of `list`, at most `limit`.

        With `after`, the last item of a list that reached its limit, this counts the remaining matches.
        """
        return self._read(count_matching, filter_of(filters, narrow), limit, after)

    def active(self, limit: int | None = None) -> Observations:
        """Return the active observations by priority, then newest first."""
        check_limit(limit)
        live = self._open()
        with live.lock:
            return live.now().active(limit)

    @property
    def position(self) -> Position:
        """The position of the last event that the view has folded."""
        return self._open().position

    @property
    def is_live(self) -> bool:
        """Whether new events are seen at once; False while the engine is away or the page is read again."""
        return self._live is not None and self._live.is_following

    @property
    def trouble(self) -> ScratchbusError | None:
        """The error that currently keeps the view from following the log, if there is one."""
        return None if self._live is None else self._live.trouble

    def _is_closed(self) -> bool:
        return self._live is None

    def _open(self) -> LivePage:
        if self._live is None:
            raise ViewClosed(self.page)
        return self._live

    def _read(
        self,
        read: Callable[[PageInMemory, Filter, int | None, int | None], T],
        wanted: Filter,
        limit: int | None,
        after: Observation | Position | str | None,
    ) -> T:
        check_limit(limit)
        live = self._open()
        with live.lock:
            page = live.now()
            self._check_known(page, wanted)
            return read(page, wanted, limit, self._below(page, after))

    def _check_known(self, page: PageInMemory, wanted: Filter) -> None:
        """Raise UnknownType or InvalidField for a value that no observation can have."""
        registry = self._core.registry
        is_old = wanted.type is not None and wanted.type not in registry.types and page.has(("type", wanted.type))
        if wanted.type is not None and not is_old:
            registry.get(wanted.type)
        if wanted.status is not None and not is_old:
            for status in wanted.status - statuses_of(self._core):
                if not matching(page, Filter(status=frozenset({status})), 1, None):
                    raise no_status(self._core, "status", status)

    def _below(self, page: PageInMemory, after: Observation | Position | str | None) -> int | None:
        if after is None:
            return None
        if isinstance(after, Observation | Position):
            return seq_on_page(self._core.log, self.page, after)
        found = page.get(check_id(after, "after"))
        if found is None:
            raise NotFound(f"after: there is no {after} on page {self.page!r}; pass the observation, not its id")
        return found.added_seq

    def _position_of(self, point: Reached) -> Position:
        """Return a position on the shard of the page. Raises InvalidPosition."""
        shard = self._core.log.shard(self.page)
        if isinstance(point, str):
            point = BusPosition.parse(point) if "," in point else Position.parse(point)
        if isinstance(point, BusPosition):
            check_shards(self._core.log, point)
            return point.shards[shard]._replace(shard=shard)
        position = point.position if isinstance(point, Observation) else point
        if not isinstance(position, Position):
            raise InvalidPosition(f"{shown(point)} is not a position; pass that of an event, or what a write returned")
        if position.checked().shard != shard:
            raise InvalidPosition(f"{str(position)!r} is not on shard {shard}, where page {self.page!r} is")
        return position

    def _seconds(self, timeout: Duration | None) -> float:
        """Return how long to wait; infinite for never. Raises InvalidTTL."""
        return self._core.fresh.timeout if timeout is None else duration_seconds(timeout, "timeout")

    def _has(self, position: Position) -> bool:
        live = self._open()
        with live.lock:
            live.now()
            return live.position >= position

    def _behind(self, position: Position, seconds: float) -> Behind:
        live = self._open()
        reason = f": {live.trouble}" if live.trouble else "; give it more time"
        return Behind(
            f"the view of page {self.page!r} is at {live.position}, not yet at {position}, after {seconds:g} s{reason}"
        )

    def _new_iteration(self) -> tuple[LivePage, Callable[[], bool]]:
        """Return the live page, and a function that returns whether this view still follows it."""
        live = self._open()
        return live, lambda: self._live is live


class PendingChanges(Watcher):
    """The changes of a view that its iterator has not read yet."""

    def __init__(
        self, woken: threading.Event | asyncio.Event, live: LivePage, is_open: Callable[[], bool], stop: Stop | None
    ) -> None:
        super().__init__(woken)
        self._changes: deque[Change] = deque()
        self._is_closed = False
        self._is_open, self._stop = is_open, check_stop(stop)
        self._poll_seconds = None if stop is None else STOPPABLE_BLOCK_MS / 1000
        self._live = live
        live.watch(self)

    def notify(self, change: Change) -> None:
        """Keep a change; if too many are pending, replace them by one resync change."""
        if len(self._changes) >= MAX_BEHIND:
            self._changes.clear()
            change = Change(None, None, None, f"more than {MAX_BEHIND:,} changes were not read in time")
        self._changes.append(change)

    def _take(self) -> Change | None:
        """Return the oldest change, if there is one."""
        self.woken.clear()
        with self._live.lock:
            if self._is_open() and self._changes:
                return self._changes.popleft()
        return None

    def _end(self) -> None:
        self._is_closed = True
        self.woken.set()

    def _is_stopped(self) -> bool:
        return self._is_closed or (self._stop is not None and self._stop.is_set())

    def _has_ended(self) -> bool:
        """Return whether no more changes will come because the view or the bus was closed."""
        ended = self._live.ended
        if not self._is_open() or isinstance(ended, BusClosed | ViewClosed):
            return True
        if ended is not None:
            raise ended.with_traceback(None)
        return False
