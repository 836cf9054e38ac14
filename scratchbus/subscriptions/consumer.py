"""A consumer of a subscription: it stands by, takes the lease, reads the log, and writes the outcomes.

It never waits and has no connection; `Subscription` and `AsyncSubscription` drive it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

from scratchbus.domain.position import Position, in_time
from scratchbus.domain.values import Duration, delay_ms, duration_seconds
from scratchbus.engine.renewal import CHECK_SECONDS, pause_for
from scratchbus.engine.retry_limits import JITTER, backoff
from scratchbus.engine.steps import Step, undo_if_cancelled
from scratchbus.errors import (
    ArchiveUnavailable,
    EngineFull,
    EngineLoading,
    EngineReadOnly,
    EngineUnreachable,
    LeaseLost,
    NotDelivered,
    NotFound,
    ScratchbusError,
)
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.reader import read
from scratchbus.eventlog.subscription_state import CursorEnd, HeldByOther, SubscriptionLease, open_cursors, origins_of
from scratchbus.eventlog.tail import Feed, TailCursor
from scratchbus.readmodel.scope import Core
from scratchbus.subscriptions.delivery_state import DeliveryState
from scratchbus.subscriptions.event_filters import Filters, Tags
from scratchbus.subscriptions.options import Terms, check_attempts, check_name, retry_seconds, start_position
from scratchbus.subscriptions.window import ACKS_FOR, DeliveryWindow
from scratchbus.telemetry.logs import stderr_logger

TRANSIENT_ERRORS = (EngineUnreachable, EngineLoading, EngineReadOnly, EngineFull)
"""Errors that may pass: a consumer waits, then continues."""

NAP = 0.5
"""The most seconds that a consumer waits without checking whether to stop."""

logger = stderr_logger()


class Consumer:
    """One consumer of a subscription, with its window of deliveries while it is the active one."""

    def __init__(
        self,
        core: Core,
        name: str,
        filters: Filters,
        terms: Terms,
        lease: float,
        make: Callable[[DeliveryWindow, LogEntry, int], DeliveryState],
        owner: object,
        wake: Callable[[], object],
        feed: Callable[[int], Feed],
    ) -> None:
        self.name = check_name(name)
        check_attempts(terms.max_attempts)
        self.window: DeliveryWindow | None = None
        self._core = core
        self._filters = filters
        self._terms = terms
        self._delay = delay_ms(terms.retry_delay, "retry_delay") / 1000
        self._handler_timeout = duration_seconds(terms.handler_timeout, "handler_timeout")
        self._lease_ms, self.max_pause, self.shard = round(lease * 1000), pause_for(lease), 0
        self._make, self._owner, self._wake, self._feed = make, owner, wake, feed
        self._process = core.process
        self._token = token_hex(8)
        self._is_declared = False
        self._tags = Tags(core)
        self._failures, self._not_before = 0, 0.0
        self._writing = set[object]()  # one for each thread or task that writes; a counter would need a lock

    # -- the path of every event -------------------------------------------------------------------------------------

    def ready(self) -> DeliveryState | None:
        """Return the next delivery if one is queued, without asking the engine."""
        window, now = self.window, time.monotonic()
        if window is None or window.is_new or window.is_lost or now > window.valid_until:
            return None
        return window.next(now)

    def advance(self) -> Step[float]:
        """Do the next step; return the seconds until the next one.

        Raises PositionLost, LogRewound or LogGap, and the errors of taking a lease.
        """
        window = self.window
        if window is None or window.is_lost:
            return (yield from self._try_lease())
        try:
            if window.pending or time.monotonic() > window.valid_until:
                yield from self.write(window)
            if window.tails is None:
                yield from self._open(window)
            if window.has_redeliveries and not window.pending:
                yield from self._read_redeliveries(window)
            if not window.has_next and not (yield from self._read(window)):
                return NAP
            if window.has_next and window.is_new and not window.wait(time.monotonic()):
                window.count_first_attempt()
                yield from self.write(window)
        except LeaseLost:
            return 0.0
        self._failures = 0
        return min(NAP, window.wait(time.monotonic()))

    def tails(self, seconds: float) -> list[int]:
        """Return the shards to read while idle for this long; none if that is too short to block."""
        window = self.window
        if window is None or window.is_lost or not window.tails or seconds < NAP:
            return []
        return [tail.feed.shard for tail in window.tails]

    def pause_after(self, problem: ScratchbusError) -> float:
        """Record an error of the engine or the archive; return the seconds to wait before the next attempt."""
        if self._failures == 0:
            awaited = "archive" if isinstance(problem, ArchiveUnavailable) else "engine"
            logger.warning(f"waiting for the {awaited}", subscription=self.name, reason=str(problem))
        self._failures += 1
        return min(NAP, backoff(self._failures))

    def reset_backoff(self) -> None:
        """Record that a wait ended without an error of the engine."""
        if self._failures:
            logger.info("going on", subscription=self.name)
        self._failures = 0

    def find(self, position: Position | str) -> DeliveryState:
        """Return the delivery that is out at a position, or was acked. Raises NotDelivered, or LeaseLost."""
        at = Position.parse(position) if isinstance(position, str) else position
        if self.window is None:
            raise NotDelivered(self.name, at)
        return self.window.find(at)

    def delay(self, attempt: int, override: Duration | None = None) -> float:
        """Return the seconds to wait after a failed attempt. Raises InvalidTTL."""
        if override is not None:
            return delay_ms(override, "delay") / 1000
        return retry_seconds(self._delay, attempt)

    # -- the lease ---------------------------------------------------------------------------------------------------

    def declare(self) -> Step[None]:
        """Record a new name and its cursor, or reset it. Raises SubscriptionHeld when a reset is refused."""
        if not self._is_declared:
            start = yield from start_position(self._core, self.name, self._filters, self._terms)
            yield from self._lease().declare(str(self._filters), start, self._terms.reset)
            self._is_declared = True

    def _lease(self) -> SubscriptionLease:
        return SubscriptionLease(self._core.log.keys(self.shard), self.name, self._token, self._process, self._lease_ms)

    def _try_lease(self) -> Step[float]:
        terms, log = self._terms, self._core.log
        start = "" if self._is_declared else (yield from start_position(self._core, self.name, self._filters, terms))
        lease, started_at = self._lease(), time.monotonic()
        try:
            grant = yield from lease.take(str(self._filters), start, terms.reset and not self._is_declared)
        except NotFound:
            for tail in (self.window and self.window.tails) or ():
                yield from read(log, [tail.cursor])  # a flushed log must be reported
            raise
        self._is_declared = True
        if isinstance(grant, HeldByOther):
            return min(NAP, grant.left_ms / 1000 + 0.01) * JITTER.uniform(0.5, 1)
        if grant.is_takeover:
            logger.warning("took over from a consumer that went away", subscription=self.name)
        self._tags = Tags(self._core)
        self.window = DeliveryWindow(lease, grant, started_at, terms.max_attempts, self._make, self._owner)
        return 0.0

    def _open(self, window: DeliveryWindow) -> Step[None]:
        log_cursors = yield from open_cursors(self._core.log, window.ends, window.origins, self._filters.pages)
        window.tails = [
            TailCursor(self._feed(cursor.position.shard), cursor, self._filters.reading, self._wake)
            for cursor in log_cursors
        ]
        for tail in window.tails:
            tail.feed.join(tail)
        if window.is_lost:  # meanwhile
            self._leave_feeds(window)

    def write(self, window: DeliveryWindow) -> Step[None]:
        """Write acks, failures and other changes to the engine, and renew the lease unless a handler hangs.

        Raises LeaseLost, also if such a lease has ended.
        """
        if window.is_lost:
            raise LeaseLost(self.name)
        started_at = time.monotonic()
        is_renewed = not self._has_hung(window, started_at)
        ends, acked, pending = window.pending_writes()
        writer = object()
        self._writing.add(writer)
        try:
            for write in pending:
                yield from write()
            redeliveries = yield from window.lease.keep(ends, self._origins(window), is_renewed=is_renewed)
            window.record_written(started_at, acked, pending, redeliveries, is_renewed=is_renewed)
            if not is_renewed and started_at > window.valid_until:
                raise LeaseLost(self.name)
        except LeaseLost:
            self._mark_lost(window)
            raise
        finally:
            self._writing.discard(writer)

    def _has_hung(self, window: DeliveryWindow, now: float) -> bool:
        return now - (window.oldest() or now) > self._handler_timeout

    def _origins(self, window: DeliveryWindow) -> str:
        return origins_of(self._core.log, window.origins, [tail.cursor for tail in window.tails or ()])

    def leave(self) -> Step[None]:
        """Write what is pending, and release the lease."""
        window = self.window
        if window is None or window.is_lost:
            return
        try:
            with suppress(LeaseLost):
                yield from undo_if_cancelled(self.write(window), window.lease.leave)
                yield from undo_if_cancelled(window.lease.leave(), window.lease.leave)
        finally:
            self._mark_lost(window)

    def _mark_lost(self, window: DeliveryWindow) -> None:
        if not window.is_lost:
            window.is_lost = True
            self._token = token_hex(8)
        self._leave_feeds(window)
        self._wake()

    def _leave_feeds(self, window: DeliveryWindow) -> None:
        for tail in window.tails or ():
            tail.feed.leave(tail)

    # -- for the keeper ------------------------------------------------------------------------------------------------

    @property
    def check_seconds(self) -> float:
        """The most seconds until the next check whether it is due: few while there are acks, or may be some soon."""
        window = self.window
        has_acks = window and (window.has_pending_writes or window.has_next or window.oldest() is not None)
        return CHECK_SECONDS if has_acks else min(NAP, self.max_pause)

    def is_due(self, now: float) -> bool:
        """Return whether to renew the lease, or to write acks that nothing else would write.

        Not while others write: the same notes, written twice, may arrive after the end of their deliveries.
        """
        window = self.window
        if window is None or window.is_lost or now < self._not_before or self._writing or self._has_hung(window, now):
            return False
        return now - window.written_at > (ACKS_FOR if window.has_pending_writes else self._lease_ms / 3000)

    def keep(self) -> Step[None]:
        """Renew the lease."""
        window = self.window
        if window is None:
            return
        try:
            yield from self.write(window)
        except LeaseLost:
            logger.warning("lost the lease", subscription=self.name)
        except TRANSIENT_ERRORS:
            self._not_before = time.monotonic() + NAP

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, window: DeliveryWindow) -> Step[bool]:
        """Enqueue the next events; return whether more may follow."""
        window.check_room()
        is_end = True
        for tail in window.tails or ():
            chunk = yield from tail.take()
            window.receive(chunk.items, tail.feed.shard, CursorEnd(*tail.end()))
            is_end = is_end and chunk.is_end
        if len(window.tails or ()) > 1:
            window.received.sort(key=lambda item: in_time(item.position))
        if not self._filters.tags:
            window.enqueue(len(window.received))
        while window.received:
            if not window.received[0].is_event:
                LogEntry.decode(window.received)
            window.enqueue(1, is_wanted=(yield from self._filters.wants(window.received[0], self._tags)))
        return window.has_next or not is_end

    def _read_redeliveries(self, window: DeliveryWindow) -> Step[None]:
        """Enqueue the next dead letters to deliver again."""
        items, missing = yield from window.again.read(self._core, self.name, window.queued_redeliveries())
        window.enqueue_first(items, missing)
        window.redeliveries = 0
