"""Batches of events for clients that pull: each has its own lease, and no state is kept in this process.

Outstanding events are stored with the subscription, so that any process may handle an ack, or the next pull.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from secrets import token_hex
from typing import Any, NamedTuple

from scratchbus.domain.checks import check_text
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.position import Position, in_time
from scratchbus.domain.values import Duration, check_whole, duration_ms, moment
from scratchbus.engine.retry_limits import JITTER
from scratchbus.engine.steps import Step, batches
from scratchbus.errors import InvalidTTL, LeaseLost, ScratchbusError, shown
from scratchbus.eventlog.archive_protocol import EVENTS_LOST
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.entry_filter import EntryFilter
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.pulls import OUT, WAITING, OutEntry, read_out
from scratchbus.eventlog.reader import read
from scratchbus.eventlog.subscription_errors import parsing
from scratchbus.eventlog.subscription_state import (
    CursorEnd,
    Grant,
    HeldByOther,
    SubscriptionLease,
    open_cursors,
    origins_of,
)
from scratchbus.readmodel.scope import Core
from scratchbus.subscriptions.consumer import NAP
from scratchbus.subscriptions.dead_letters import READ_AT_ONCE, positions_to_redeliver, read_redeliveries
from scratchbus.subscriptions.delivery_state import WENT_AWAY
from scratchbus.subscriptions.event_filters import Filters, Tags
from scratchbus.subscriptions.options import Terms, check_name, name_reset
from scratchbus.subscriptions.settlement import event_at, give_up, give_up_unread, requeue
from scratchbus.telemetry import tracing
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

MAX_PULLED = 1_000
"""The most events in one batch."""

MAX_LEASE_MS = 12 * 3_600_000

POLL_SECONDS = 2.0
"""The most seconds that a pull waits for an event before it checks the engine for other changes."""


logger = stderr_logger()


class PulledEvent(NamedTuple):
    """A pulled event, and the number of this attempt at handling it, from 1."""

    event: AnyEvent
    attempt: int

    @property
    def position(self) -> Position:
        """The position of the event, by which it is acked."""
        return self.event.position


class Pulled(NamedTuple):
    """A batch of events, oldest first and possibly empty, to ack with this token before its lease ends at `until`."""

    token: str
    until: datetime | None
    deliveries: list[PulledEvent]


class Attempt(NamedTuple):
    """The result of one attempt to pull. If empty, retry after some seconds, or on new events after the cursors.

    `wanted` selects the events to wake up for.
    """

    pulled: Pulled
    seconds: float = 0.0
    cursors: Sequence[Cursor] = ()
    wanted: EntryFilter = EntryFilter()


NOTHING = Pulled("", None, [])

_Events = list[tuple[LogEntry, AnyEvent]]  # entries of the log with their events


class Pull:
    """A client's request to pull from a subscription. Raises InvalidInput."""

    def __init__(self, core: Core, name: str, max_events: int, lease: Duration, by: str | None) -> None:
        self._core = core
        self._name = check_name(name)
        self._max_events = check_whole("max", max_events, maximum=MAX_PULLED)
        ms = duration_ms(lease, "lease", minimum=1000)
        if ms is None or ms > MAX_LEASE_MS:
            raise InvalidTTL(f"lease: {shown(lease)} is not a valid lease; use 1s to 12h")
        self._lease_ms = ms
        self._by = core.process if by is None else check_text("by", by) or core.process
        self._tags = Tags(core)

    def attempt(self) -> Step[Attempt]:
        """Take the lease and hand out available events; without any, release it.

        Raises NotFound, PositionLost, LogRewound or LogGap.
        """
        core = self._core
        short_ms = min(self._lease_ms, round(core.settings.seconds("subscription_lease") * 1000))
        lease = SubscriptionLease(core.log.keys(0), self._name, token_hex(16), self._by, short_ms)
        grant = yield from lease.take_to_pull()
        if isinstance(grant, HeldByOther):
            return Attempt(NOTHING, min(NAP, grant.left_ms / 1000 + 0.01) * JITTER.uniform(0.5, 1))
        try:
            return (yield from self._pull(lease._replace(ms=self._lease_ms), grant, short_ms))
        except LeaseLost:
            return Attempt(NOTHING)
        except ScratchbusError as problem:
            name_reset(problem, self._name)
            with suppress(ScratchbusError):
                yield from lease.leave()
            raise

    def requeue(self, pulled: Pulled) -> Step[None]:
        """Give a batch back unhandled. Raises LeaseLost, NotDelivered or NotFound."""
        return requeue(self._core, self._name, pulled.token, [each.position for each in pulled.deliveries])

    def _pull(self, lease: SubscriptionLease, grant: Grant, short_ms: int) -> Step[Attempt]:
        with parsing(self._name):
            filters, outstanding = Filters.parse(grant.filters), read_out(grant.handed_out)
        if outstanding:
            return (yield from self._redeliver(lease, grant, outstanding))
        if grant.redeliveries:
            items: list[LogEntry] = []
            for batch in batches((yield from positions_to_redeliver(self._core, self._name)), READ_AT_ONCE):
                wanted = batch[: self._max_events - len(items)]
                found, missing = yield from read_redeliveries(self._core, self._name, wanted)
                for dead_letter in missing:
                    yield from lease.set_aside(dead_letter.position, dead_letter.model_dump_json(), grant.ends)
                items += found
                if len(items) >= self._max_events:
                    break
            events = _events(items)
            valid = {item.position for item, _ in events}
            for item in items:
                if item.position not in valid:  # else it would hold up the others at each pull
                    yield from lease.done(str(item.position))
            if events:
                out = [_entry(item)._replace(comes_again=True) for item, _ in events]
                return (
                    yield from self._hand_out(
                        lease, grant, [event for _, event in events], out, grant.ends, grant.origins
                    )
                )
        log, ends = self._core.log, list(grant.ends)
        log_cursors = yield from open_cursors(log, grant.ends, grant.origins, filters.pages)
        while True:
            chunks = yield from read(log, log_cursors)
            origins = origins_of(log, grant.origins, log_cursors)
            if not chunks:
                yield from lease.hand_out([], ends, origins)
                return Attempt(NOTHING, POLL_SECONDS, log_cursors, filters.reading)
            events, busy = yield from self._wanted(filters, chunks)
            for cursor in log_cursors:
                if (shard := cursor.position.shard) not in busy:
                    ends[shard] = CursorEnd(cursor.position, cursor.event_id)
            if events:
                return (yield from self._pull_new(lease, grant, events, ends, origins))
            yield from lease._replace(ms=short_ms).keep(ends, origins)

    def _wanted(self, filters: Filters, chunks: Iterable[tuple[int, Sequence[Any]]]) -> Step[tuple[_Events, set[int]]]:
        """Return the next wanted events, and the shards with these or with events not yet examined."""
        items = [LogEntry(entry, shard) for shard, entries in chunks for entry in entries]
        items.sort(key=lambda item: in_time(item.position))
        events: _Events = []
        at = 0
        while at < len(items) and len(events) < self._max_events:
            if (yield from filters.wants(items[at], self._tags)):
                if not items[at].is_event:
                    LogEntry.decode(items[at:])
                events += _events(items[at : at + 1])
            at += 1
        return events, {item.shard for item, _ in events} | {item.shard for item in items[at:]}

    def _pull_new(
        self, lease: SubscriptionLease, grant: Grant, events: _Events, ends: Sequence[CursorEnd], origins: str
    ) -> Step[Attempt]:
        """Hand out new events to a client that pulls; an event that has failed is handed out alone."""
        failed_index = next((at for at, (item, _) in enumerate(events) if str(item.position) == grant.trying), None)
        if failed_index:
            events = events[:failed_index]
        elif failed_index == 0:
            due = grant.now + grant.wait_ms if grant.wait_ms else 0
            first = _entry(events[0][0])._replace(state=WAITING, attempt=grant.attempts + 1, due=due)
            return (yield from self._redeliver(lease, grant._replace(ends=list(ends), origins=origins), [first]))
        out = [_entry(item) for item, _ in events]
        return (yield from self._hand_out(lease, grant, [event for _, event in events], out, ends, origins))

    def _redeliver(self, lease: SubscriptionLease, grant: Grant, outstanding: list[OutEntry]) -> Step[Attempt]:
        """Hand out events again: one that has failed alone, then the following ones that have not, together.

        So an event that crashes a client does not make others fail.
        """
        head, *rest = (each._replace(state=WAITING) if each.state == OUT else each for each in outstanding)
        if outstanding[0].state == OUT:  # the lease of its client has ended
            head = head._replace(attempt=head.attempt + 1, due=0)
        if head.due > grant.now:
            yield from lease.hand_out([head, *rest], grant.ends, grant.origins)
            return Attempt(NOTHING, (head.due - grant.now) / 1000)
        out = [head._replace(state=OUT), *rest]
        try:
            event = yield from event_at(self._core, head.position)
        except EVENTS_LOST as lost:
            if not head.comes_again:  # the log was trimmed past the cursor
                raise
            yield from lease.hand_out(out, grant.ends, grant.origins)
            yield from give_up_unread(self._core, self._name, lease.token, head, str(lost))
            return Attempt(NOTHING)
        maximum = grant.max_attempts or Terms().max_attempts
        if event is None or head.attempt > maximum:
            yield from lease.hand_out(out, grant.ends, grant.origins)
            yield from give_up(self._core, self._name, lease.token, head, event, WENT_AWAY, head.attempt - 1)
            return Attempt(NOTHING)
        events = [event]
        while (
            head.attempt == 1 and len(events) < min(self._max_events, len(out)) and _is_first_attempt(out[len(events)])
        ):
            try:
                event = yield from event_at(self._core, out[len(events)].position)
            except EVENTS_LOST:  # it is set aside once it is the first
                break
            if event is None:
                break
            out[len(events)] = out[len(events)]._replace(state=OUT)
            events.append(event)
        return (yield from self._hand_out(lease, grant, events, out, grant.ends, grant.origins))

    def _hand_out(
        self,
        lease: SubscriptionLease,
        grant: Grant,
        events: Sequence[AnyEvent],
        out: Sequence[OutEntry],
        ends: Sequence[CursorEnd],
        origins: str,
    ) -> Step[Attempt]:
        yield from lease.hand_out(out, ends, origins)
        counts.subscriptions[self._name].delivered += len(events)
        deliveries = [PulledEvent(event, out[at].attempt) for at, event in enumerate(events)]
        if tracing.active is not None:
            for each in deliveries:
                tracing.active.deliver(self._name, each.event, each.attempt).end()
        return Attempt(Pulled(lease.token, moment(grant.now + lease.ms), deliveries))


def _is_first_attempt(entry: OutEntry) -> bool:
    return entry.state == WAITING and entry.attempt == 1


def _entry(item: LogEntry) -> OutEntry:
    """Return the entry for an event that is handed out now."""
    position, _, event_id = str(CursorEnd(item.position, item.id)).partition("|")
    return OutEntry(position, event_id)


def _events(items: Sequence[LogEntry]) -> _Events:
    """Return entries with their events; log and skip invalid entries."""
    found: _Events = []
    for item in items:
        if not item.is_event:
            LogEntry.decode(items)
        event = item.event
        if isinstance(event, Poison):
            logger.warning("not an event", position=str(event.position), reason=event.reason)
        else:
            found.append((item, event))
    return found
