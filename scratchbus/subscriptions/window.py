"""The window of a consumer: its queued, outstanding and acked events while it holds the lease."""

from __future__ import annotations

import threading
import time
from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.errors import LeaseLost, NotDelivered, TooManyUnacked
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.subscription_state import CursorEnd, Grant, SubscriptionLease
from scratchbus.eventlog.tail import TailCursor
from scratchbus.subscriptions.dead_letters import DeadLetter, Redeliveries, set_aside
from scratchbus.subscriptions.delivery_state import ACKED, OUT, WAITING, WENT_AWAY, DeliveryState
from scratchbus.telemetry import tracing
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

MAX_UNACKED = 10_000
"""The most deliveries that may be out at once."""

ACKS_AT_ONCE = 1_000
ACKS_FOR = 0.1
"""Acks are written once there are this many, or after this many seconds."""

_REDELIVERY_NUMBERS = 1_000_000_000  # redeliveries are numbered from minus this

logger = stderr_logger()

PendingWrite = Callable[[], Step[None]]
"""A pending write to the engine."""


class DeliveryWindow:
    """The deliveries under a lease; shared by the consumer's threads and the one that renews the lease."""

    def __init__(
        self,
        lease: SubscriptionLease,
        grant: Grant,
        started_at: float,
        max_attempts: int,
        make: Callable[[DeliveryWindow, LogEntry, int], DeliveryState],
        owner: Any,
    ) -> None:
        self.lease = lease
        self.owner = owner
        self.is_lost = False
        self.valid_until, self.written_at = started_at + lease.ms / 1000, started_at
        self.tails: list[TailCursor] | None = None
        self.ends, self.origins = grant.ends, grant.origins
        self.redeliveries = grant.redeliveries
        self.doubtful = ACKS_AT_ONCE + 1 if grant.is_takeover else 0
        self.is_new = grant.is_takeover
        self.received: list[LogEntry] = []
        self.again = Redeliveries()
        self.pending: list[PendingWrite] = []
        self._counts = counts.subscriptions[lease.name]
        self._max_attempts, self._make = max_attempts, make
        self._trying, self._attempts = grant.trying, grant.attempts
        self._due = started_at + grant.wait_ms / 1000
        self._handled_ends: list[CursorEnd | LogEntry] = [*grant.ends]  # the handled end of each shard
        self._ends: dict[int, CursorEnd] = {}
        self._queue: deque[DeliveryState] = deque()  # out or to be handed out, in order, from the first unacked on
        self._waiting: deque[DeliveryState] = deque()
        self._number, self._next_redelivery = 0, -_REDELIVERY_NUMBERS
        self._acked = self._written = 0
        self._lock = threading.Lock()

    # -- incoming entries --------------------------------------------------------------------------------------------

    def check_room(self) -> None:
        """Raise TooManyUnacked when too many deliveries are out to read more."""
        if len(self._queue) - len(self._waiting) > MAX_UNACKED:
            raise TooManyUnacked(self.lease.name, MAX_UNACKED)

    def receive(self, items: Sequence[LogEntry], shard: int, end: CursorEnd) -> None:
        """Keep entries read from a shard, up to its end, until they are enqueued."""
        with self._lock:
            self.received += items
            self._ends[shard] = end

    def enqueue(self, count: int, *, is_wanted: bool = True) -> None:
        """Enqueue the first entries that were received, or drop them if they are not wanted."""
        with self._lock:
            if is_wanted:
                self._append(self.received[:count])
            del self.received[:count]

    @property
    def has_redeliveries(self) -> bool:
        """Whether to read dead letters to deliver again: once none that was read waits."""
        return bool(self.again.positions or self.redeliveries) and not (self._waiting and self._waiting[0].number < 0)

    def queued_redeliveries(self) -> set[str]:
        """Return the positions of the dead letters that are delivered again already."""
        with self._lock:
            return {str(delivery.position) for delivery in self._queue if delivery.number < 0}

    def enqueue_first(self, items: Sequence[LogEntry], missing: Sequence[DeadLetter]) -> None:
        """Enqueue entries that are delivered again, before all others; make the missing ones dead letters again."""
        with self._lock:
            self.pending += [
                partial(self.lease.set_aside, each.position, each.model_dump_json(), self._cursor_ends())
                for each in missing
            ]
            deliveries = [self._make(self, item, number) for number, item in enumerate(items, self._next_redelivery)]
            self._next_redelivery += len(deliveries)
            self._restore_attempts(deliveries)
            for delivery in reversed(deliveries):
                self._queue.appendleft(delivery)
                self._insert(delivery)

    def _append(self, items: list[LogEntry]) -> None:
        deliveries = [self._make(self, item, number) for number, item in enumerate(items, self._number + 1)]
        self._number += len(deliveries)
        self._queue += deliveries
        self._waiting += deliveries
        if self._trying:
            self._restore_attempts(deliveries)

    def _restore_attempts(self, deliveries: list[DeliveryState]) -> None:
        """Continue the count of attempts of the previous consumer."""
        for delivery in deliveries:
            if str(delivery.position) == self._trying:
                delivery.attempt, delivery.when, delivery.is_noted = self._attempts + 1, self._due, True
                self._trying = ""
                return

    def _insert(self, delivery: DeliveryState) -> None:
        self._waiting.insert(bisect(self._waiting, delivery.number, key=attrgetter("number")), delivery)

    # -- handing out --------------------------------------------------------------------------------------------------

    def next(self, now: float) -> DeliveryState | None:
        """Hand out the next delivery if its time has come. Raises CodeTooOld."""
        waiting = self._waiting
        with self._lock:
            while waiting:
                delivery = waiting[0]
                if delivery.when > now:
                    return None
                item, problem = delivery.item, None
                if not item.is_event:
                    if len(waiting) > 1:
                        LogEntry.decode(each.item for each in waiting)
                    problem = item.problem
                waiting.popleft()
                if problem is not None:
                    logger.warning("not an event", position=str(problem.position), reason=problem.reason)
                    self._finish(delivery)
                elif delivery.attempt > self._max_attempts:
                    self._make_dead_letter(delivery, WENT_AWAY, delivery.attempt - 1)
                else:
                    delivery.state, delivery.when = OUT, now
                    self._counts.delivered += 1
                    if tracing.active is not None:
                        delivery.span = tracing.active.deliver(self.lease.name, delivery.event, delivery.attempt)
                    return delivery
        return None

    def wait(self, now: float) -> float:
        """Return the seconds until the next delivery; 0 without one."""
        return max(0.0, self._waiting[0].when - now) if self._waiting else 0.0

    def count_first_attempt(self) -> None:
        """Count the first event as tried: it may have crashed the previous consumer."""
        with self._lock:
            self.is_new = False
            delivery = self._waiting[0]
            delivery.is_noted = True
            self.pending.append(partial(self.lease.note, str(delivery.position), delivery.attempt, 0))

    @property
    def has_next(self) -> bool:
        """Whether there is a delivery to hand out, now or later."""
        return bool(self._waiting)

    def oldest(self) -> float | None:
        """Return when the oldest delivery that is out was handed out (monotonic seconds)."""
        with self._lock:
            others = (each for each in self._queue if each.state != WAITING)  # mostly the first ones
            count = len(self._queue) - len(self._waiting)
            return min((each.when for each in islice(others, count) if each.state == OUT), default=None)

    # -- acks and failures -------------------------------------------------------------------------------------------

    def ack(self, delivery: DeliveryState) -> bool:
        """Record an ack; return whether to write now. Raises LeaseLost or NotDelivered."""
        if self.is_lost:
            raise LeaseLost(self.lease.name)
        now = time.monotonic()
        with self._lock:
            if delivery.state != OUT:
                if delivery.state == ACKED:
                    return False
                raise NotDelivered(self.lease.name, delivery.position)
            self._finish(delivery)
            delivery.settled()
            self._acked += 1
            self._counts.acked += 1
            self._counts.took.add(now - delivery.when)
            if self.doubtful:
                self.doubtful -= 1
                return True
            if self.pending or self._acked - self._written >= ACKS_AT_ONCE:
                return True
        return now - self.written_at > ACKS_FOR or now > self.valid_until

    def find(self, position: Position) -> DeliveryState:
        """Return the delivery that is out at a position, or was acked. Raises NotDelivered, or LeaseLost."""
        if self.is_lost:
            raise LeaseLost(self.lease.name)
        with self._lock:
            for state in (OUT, ACKED):  # after a reset, an event may be in the queue twice
                for delivery in self._queue:
                    if delivery.position == position and delivery.state == state:
                        return delivery
        raise NotDelivered(self.lease.name, position)

    def fail(self, delivery: DeliveryState, reason: str, delay: float) -> None:
        """Take back a delivery that failed: it is delivered again, or set aside after the last attempt.

        Raises LeaseLost or NotDelivered.
        """
        if self.is_lost:
            raise LeaseLost(self.lease.name)
        with self._lock:
            if delivery.state != OUT:
                raise NotDelivered(self.lease.name, delivery.position)
            now, reason = time.monotonic(), str(reason)  # it may be an exception
            self._counts.failed += 1
            delivery.settled(reason)
            self._counts.took.add(now - delivery.when)
            if delivery.attempt >= self._max_attempts:
                self._make_dead_letter(delivery, reason, delivery.attempt)
                return
            self.pending.append(partial(self.lease.note, str(delivery.position), delivery.attempt, round(delay * 1000)))
            delivery.state, delivery.when, delivery.is_noted = WAITING, now + delay, True
            delivery.attempt += 1
            self._insert(delivery)

    def _make_dead_letter(self, delivery: DeliveryState, reason: str, attempts: int) -> None:
        dead_letter = set_aside(self.lease.name, delivery.event, reason, attempts)
        delivery.is_noted = False  # the dead letter replaces the note
        self._finish(delivery)
        self.pending.append(partial(self.lease.set_aside, str(delivery.position), dead_letter, self._cursor_ends()))

    def _finish(self, delivery: DeliveryState) -> None:
        """Mark a delivery as done, and move the cursor past all at the front of the queue that are."""
        delivery.state = ACKED
        if delivery.is_noted:
            self.pending.append(partial(self.lease.done, str(delivery.position)))
        if delivery.number < 0 and self._trying:  # not read yet; the note of the redelivery has replaced its own
            wait_ms = max(0, round((self._due - time.monotonic()) * 1000))
            self.pending.append(partial(self.lease.note, self._trying, self._attempts, wait_ms))
        queue = self._queue
        while queue and queue[0].state == ACKED:
            finished = queue.popleft()
            if finished.number > 0:
                self._handled_ends[finished.item.shard] = finished.item

    # -- writes to the engine ----------------------------------------------------------------------------------------

    @property
    def has_pending_writes(self) -> bool:
        """Whether there are pending writes."""
        return bool(self.pending) or self._acked > self._written

    def pending_writes(self) -> tuple[list[CursorEnd], int, list[PendingWrite]]:
        """Return the end of the handled events, the number of acks in them, and the pending calls."""
        with self._lock:
            return self._cursor_ends(), self._acked, list(self.pending)

    def record_written(
        self, started_at: float, acked: int, written: list[PendingWrite], redeliveries: int, *, is_renewed: bool
    ) -> None:
        """Record the completed writes, and whether they renewed the lease."""
        with self._lock:
            self._written = max(self._written, acked)
            self.pending = [write for write in self.pending if not any(write is each for each in written)]
            self.written_at, self.redeliveries = started_at, redeliveries
            if is_renewed:
                self.valid_until = started_at + self.lease.ms / 1000

    def _cursor_ends(self) -> list[CursorEnd]:
        """Return the handled end of each shard: the end of the entries read if none are out."""
        ends = {} if self._queue or self.received else self._ends
        return [
            ends.get(shard) or (CursorEnd(at.position, at.id) if isinstance(at, LogEntry) else at)
            for shard, at in enumerate(self._handled_ends)
        ]
