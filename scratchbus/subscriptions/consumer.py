"""A consumer of a subscription: it stands by, takes the lease, reads the log, and writes the outcomes.

It never waits and has no connection; `Subscription` and `AsyncSubscription` drive it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from secrets import token_hex

from scratchbus.domain.position import BusPosition, Position, in_time
from scratchbus.domain.values import Duration, delay_ms
from scratchbus.engine.patience import backoff
from scratchbus.engine.steps import Step
from scratchbus.errors import (
    EngineFull,
    EngineLoading,
    EngineReadOnly,
    EngineUnreachable,
    LeaseLost,
    NotDelivered,
    NotFound,
    ScratchbusError,
)
from scratchbus.eventlog.consumers import CursorEnd, HeldByOther, SubscriptionLease, open_cursors, origins_of
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.reader import read
from scratchbus.eventlog.tail import Feed, TailCursor
from scratchbus.readmodel.scope import Core
from scratchbus.subscriptions.dead_letters import read_again
from scratchbus.subscriptions.delivery_state import DeliveryState
from scratchbus.subscriptions.event_filters import Filters, Tags
from scratchbus.subscriptions.options import Terms, check_attempts, check_name, retry_seconds, seconds
from scratchbus.subscriptions.window import ACKS_FOR, DeliveryWindow
from scratchbus.telemetry.logs import stderr_logger

PASSING = (EngineUnreachable, EngineLoading, EngineReadOnly, EngineFull)
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
        self._patience = seconds("handler_timeout", terms.handler_timeout)
        self._lease_ms = round(lease * 1000)
        self._make, self._owner, self._wake, self._feed = make, owner, wake, feed
        self._who = core.process
        self._token = token_hex(8)
        self._is_known = False
        self._tags = Tags(core)
        self._failures = 0
        self._not_before = 0.0

    # -- the path of every event -------------------------------------------------------------------------------------

    def ready(self) -> DeliveryState | None:
        """Return the next delivery if one is queued, without asking the engine."""
        window, now = self.window, time.monotonic()
        if window is None or window.is_new or window.is_lost or now > window.good_until:
            return None
        return window.next(now)

    def advance(self) -> Step[float]:
        """Do the next step; return the seconds until the next one.

        Raises PositionLost, LogRewound or LogGap, and the errors of taking a lease.
        """
        window = self.window
        if window is None or window.is_lost:
            return (yield from self._stand_in_line())
        try:
            if window.pending or time.monotonic() > window.good_until:
                yield from self.write(window)
            if window.places is None:
                yield from self._open(window)
            if window.again and not window.pending:
                yield from self._read_again(window)
            if not window.has_next and not (yield from self._read(window)):
                self._failures = 0
                return NAP
            if window.has_next and window.is_new:
                window.in_doubt()
                yield from self.write(window)
        except LeaseLost:
            return 0.0
        self._failures = 0
        return min(NAP, window.wait(time.monotonic()))

    def tails(self, seconds: float) -> list[int]:
        """Return the shards to read while idle for this long; none if that is too short to block."""
        window = self.window
        if window is None or window.is_lost or not window.places or seconds < NAP:
            return []
        return [place.feed.shard for place in window.places]

    def trouble(self, problem: ScratchbusError) -> float:
        """Record an error of the engine; return the seconds to wait before the next attempt."""
        if self._failures == 0:
            logger.warning("waiting for the engine", subscription=self.name, reason=str(problem))
        self._failures += 1
        return min(NAP, backoff(self._failures))

    def find(self, position: Position | str) -> DeliveryState:
        """Return the delivery that is out at a position. Raises NotDelivered, or LeaseLost."""
        at = Position.parse(position) if isinstance(position, str) else position
        if self.window is None:
            raise NotDelivered(self.name, at)
        return self.window.find(at)

    def delay(self, attempt: int, given: Duration | None = None) -> float:
        """Return the seconds to wait after a failed attempt. Raises InvalidTTL."""
        if given is not None:
            return delay_ms(given, "delay") / 1000
        return retry_seconds(self._delay, attempt)

    # -- the lease ---------------------------------------------------------------------------------------------------

    def declare(self) -> Step[None]:
        """Record a new name and its cursor, or reset it. Raises SubscriptionHeld when a reset is refused."""
        if not self._is_known:
            start = yield from self._start()
            yield from self._lease().declare(str(self._filters), start, self._terms.reset)
            self._is_known = True

    def _start(self) -> Step[str]:
        places = yield from cursors(self._core.log, self._terms.after)
        return str(BusPosition(tuple(place.position for place in places)))

    def _lease(self) -> SubscriptionLease:
        return SubscriptionLease(self._core.log.keys(0), self.name, self._token, self._who, self._lease_ms)

    def _stand_in_line(self) -> Step[float]:
        terms, log = self._terms, self._core.log
        start = "" if self._is_known else (yield from self._start())
        lease, begun = self._lease(), time.monotonic()
        try:
            taken = yield from lease.take(str(self._filters), start, terms.reset and not self._is_known)
        except NotFound:
            for place in (self.window and self.window.places) or ():
                yield from read(log, [place.cursor])  # a flushed log must be reported
            raise
        self._is_known = True
        if isinstance(taken, HeldByOther):
            return min(NAP, taken.left_ms / 1000 + 0.01) * random.uniform(0.5, 1)
        if taken.is_takeover:
            logger.warning("took over from a consumer that went away", subscription=self.name)
        self._tags = Tags(self._core)
        self.window = DeliveryWindow(lease, taken, begun, terms.max_attempts, self._make, self._owner)
        return 0.0

    def _open(self, window: DeliveryWindow) -> Step[None]:
        places = yield from open_cursors(self._core.log, window.ends, window.origins, self._filters.pages)
        window.places = [
            TailCursor(self._feed(place.position.shard), place, self._filters.reading, self._wake) for place in places
        ]
        for each in window.places:
            each.feed.join(each)

    def write(self, window: DeliveryWindow) -> Step[None]:
        """Write acks, failures and other changes to the engine, and renew the lease. Raises LeaseLost."""
        if window.is_lost:
            raise LeaseLost(self.name)
        begun = time.monotonic()
        ends, acked, pending = window.owed()
        try:
            for write in pending:
                yield from write()
            again = yield from window.lease.keep(ends, self._origins(window))
        except LeaseLost:
            self._lose(window)
            raise
        window.wrote(begun, acked, pending, again)

    def _origins(self, window: DeliveryWindow) -> str:
        return origins_of(self._core.log, window.origins, [place.cursor for place in window.places or ()])

    def leave(self) -> Step[None]:
        """Write what is pending, and release the lease."""
        window = self.window
        if window is None or window.is_lost:
            return
        try:
            yield from self.write(window)
            yield from window.lease.leave()
        except LeaseLost:
            pass
        finally:
            self._lose(window)

    def _lose(self, window: DeliveryWindow) -> None:
        if not window.is_lost:
            window.is_lost = True
            self._token = token_hex(8)
        for place in window.places or ():
            place.feed.leave(place)
        self._wake()

    # -- what the keeper asks for --------------------------------------------------------------------------------------

    def is_due(self, now: float) -> bool:
        """Return whether to renew the lease, or to write acks that nothing else would write."""
        window = self.window
        if window is None or window.is_lost or now < self._not_before:
            return False
        oldest = window.oldest()
        if oldest is not None and now - oldest > self._patience:
            return False
        return now - window.written_at > (ACKS_FOR if window.owes else self._lease_ms / 3000)

    def keep(self) -> Step[None]:
        """Renew the lease."""
        window = self.window
        if window is None:
            return
        try:
            yield from self.write(window)
        except LeaseLost:
            logger.warning("lost the lease", subscription=self.name)
        except PASSING:
            self._not_before = time.monotonic() + NAP

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, window: DeliveryWindow) -> Step[bool]:
        """Enqueue the next events; return whether more may follow."""
        window.check_room()
        is_end = True
        for place in window.places or ():
            taken = yield from place.take()
            window.receive(taken.items, place.feed.shard, CursorEnd(place.cursor.position, place.cursor.event_id))
            is_end = is_end and taken.is_end
        if len(window.places or ()) > 1:
            window.raw.sort(key=lambda item: in_time(item.position))
        if not self._filters.tags:
            window.enqueue_all()
        while window.raw:
            if not window.raw[0].is_event:
                LogEntry.decode(window.raw)
            window.enqueue(is_wanted=(yield from self._filters.wants(window.raw[0], self._tags)))
        return window.has_next or not is_end

    def _read_again(self, window: DeliveryWindow) -> Step[None]:
        """Enqueue the dead letters to deliver again."""
        items, gone = yield from read_again(self._core, self.name)
        for letter in gone:
            window.set_aside(letter)
        window.enqueue_first(items)
        window.again = 0
