"""Reactions to events: the reminders that wait for them, and the reviews after a refutation."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from scratchbus.commands.dependents import complete
from scratchbus.domain.event import Event
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import Due, StatusChanged
from scratchbus.domain.position import START, BusPosition, Position
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import Conflict, NotFound, VersionConflict
from scratchbus.eventlog.append import append
from scratchbus.eventlog.archive_protocol import EVENTS_LOST
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.entry_filter import EntryFilter, decode_wanted
from scratchbus.eventlog.gaps import count_erased
from scratchbus.eventlog.ids import new_event_id
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.raw_entries import RawEntry, entry_position
from scratchbus.eventlog.reader import CHUNK, Chunks
from scratchbus.eventlog.stored_documents import decode_observations
from scratchbus.eventlog.writes import Op, Write
from scratchbus.projections.filters import Filter
from scratchbus.projections.scratch_page import evolve
from scratchbus.readmodel.history import history
from scratchbus.readmodel.page_query import query_page
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.scope import Core
from scratchbus.readmodel.search import search
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

REMINDER_KINDS = ("added", "repeated", "updated", "status_changed")
"""The kinds of events that a reminder may wait for: changes of an observation, not its claims."""

_TRIES = 100

States = dict[int, Observation | None]
"""An observation after each of its events, by the event's seq."""

logger = stderr_logger()


def react(core: Core) -> Step[tuple[dict[int, Position], bool]]:
    """Process the next events; return the new positions by shard, and whether they advanced.

    The engine stores the positions. Processing an event twice is harmless.
    """
    key = core.log.keys(0).reminders
    row = yield from ask(0, "GET", key)
    starts = BusPosition.parse(row.decode()).shards if row else (START,) * core.log.shards
    positions: list[Position] = []
    chunks: Chunks = []
    for shard, start in enumerate(starts):
        entries, end = yield from _next_events(core.log, start._replace(shard=shard))
        positions.append(end)
        chunks += [(shard, entries)] if entries else []
    has_moved = positions != [start._replace(shard=shard) for shard, start in enumerate(starts)]
    if has_moved:
        events = decode_wanted(chunks, EntryFilter.of(None, None, REMINDER_KINDS))
        yield from complete_all(core, events)
        yield from remind(core, events)
        yield from ask(0, "SET", key, str(BusPosition(tuple(positions))))
    return {position.shard: position for position in positions}, has_moved


def _next_events(log: Log, after: Position) -> Step[tuple[list[RawEntry], Position]]:
    """Return the next entries of a shard's log, and where they end.

    It continues after missing events: they will not come back, and reminders for other events must not wait for ever. A
    log that ends before the position is a different one, and is read from its start.
    """
    keys = log.keys(after.shard)
    for start in (after, START._replace(shard=after.shard)):
        log_reader = LogReader(log, start, chunk=CHUNK, skips_lost=True)
        found = yield from log_reader.read(("GET", keys.tail))
        entries, end = found.entries, end_of(found.replies[0], after.shard)
        if start <= end and (not entries or entry_position(entries[0], after.shard).seq > start.seq):
            break
    end = log_reader.at if entries else end
    missing = end.seq - start.seq - len(entries)
    if missing:
        missing -= yield from count_erased(keys, start.seq, end.seq + 1)
    if missing or start != after:
        counts.missed += missing
        logger.warning("reminders continue after missing events", shard=after.shard, after=str(after), events=missing)
    return entries, end


def remind(core: Core, events: list[AnyEvent]) -> Step[int]:
    """Append `due` for the open reminders that wait for one of these events; return their number.

    The events come in log order, and the first match is the trigger. An event is matched by the state of its
    observation right after it, whatever happened since.
    """
    count = 0
    by_page: dict[str, list[AnyEvent]] = defaultdict(list)
    for event in events:
        by_page[event.page].append(event)
    for page, candidates in by_page.items():
        reminders = yield from search(core.log, page, core.fresh, Filter(waiting=True), None, None)
        candidates = [event for event in candidates if any(_may_wait_for(reminder, event) for reminder in reminders)]
        states = yield from _last_moments(core, page, {event.subject for event in candidates})
        for event in candidates:
            subject = yield from _state_after(core, event, states[event.subject])
            for reminder in [each for each in reminders if subject is not None and _waits_for(each, event, subject)]:
                reminders.remove(reminder)
                count += yield from _fall_due(core, reminder, event)
    return count


def _may_wait_for(reminder: Observation, event: Event) -> bool:
    """Return whether an event may match a reminder, judged without its observation."""
    return (
        event.kind in REMINDER_KINDS
        and reminder.id != event.subject
        and reminder.added < event.position
        and (reminder.remind_on or {}).get("type", event.type) == event.type
    )


def _waits_for(reminder: Observation, event: Event, subject: Observation) -> bool:
    condition = reminder.remind_on or {}
    return (
        _may_wait_for(reminder, event)
        and condition.get("status", subject.status) == subject.status
        and set(condition.get("tags", ())) <= set(subject.tags)
    )


def _last_moments(core: Core, page: str, subjects: set[str]) -> Step[dict[str, States]]:
    """Return, for each subject, its current document by the seq of its last event."""
    states: dict[str, States] = {subject: {} for subject in subjects}
    if subjects:
        reply = yield from query_page(core.log, page, core.fresh, "get", *subjects)
        for document in (*decode_observations(reply.rows), *filter(None, reply.overlay.values())):
            if document.id in states:
                states[document.id][document.seq] = document
    return states


def _state_after(core: Core, event: Event, states: States) -> Step[Observation | None]:
    """Return the observation right after an event, from its known states or else from its history."""
    if event.kind == "added":
        return evolve(None, event)
    if event.seq not in states:
        current = states[max(states)] if states else None
        try:
            events = yield from history(core.log, event.page, event.subject)
        except EVENTS_LOST as lost:
            logger.warning("reminders use its current state", position=str(event.position), reason=str(lost))
            return current
        state: Observation | None = None
        for each in events:
            with suppress(ValueError, TypeError, OverflowError):  # the projection rejects events that cannot be folded
                state = evolve(state, each)
            states[each.seq] = state
    return states.get(event.seq)


def _fall_due(core: Core, reminder: Observation, event: Event) -> Step[bool]:
    """Append `due` unless the reminder has fallen due or closed meanwhile."""
    current: Observation | None = reminder
    for _ in range(_TRIES):
        if current is None or not current.is_open or current.remind_on is None:
            return False
        due = Due(
            id=new_event_id(),
            page=current.page,
            subject=current.id,
            type=current.type,
            by=core.by,
            cause=str(event.position),
            trigger=str(event.position),
        )
        try:
            yield from append(core.log, current.page, [Write(due, Op.NOTE, version=current.version, due_at="0")])
            return True
        except (VersionConflict, NotFound):
            current = (yield from get(core.log, current.page, [current.id], core.fresh)).get(current.id)
    logger.warning("a reminder keeps changing, or its state is damaged", observation=reminder.id)
    return False


def complete_all(core: Core, events: list[AnyEvent]) -> Step[int]:
    """Finish the refutations among these events if their writer is gone; return the number of reviews appended.

    Both may run concurrently; each observation is sent to review once.
    """
    count = 0
    for event in events:
        if isinstance(event, StatusChanged) and event.reason_code == "refuted":
            try:
                count += yield from complete(core, event)
            except (Conflict, NotFound) as problem:  # the state is damaged
                logger.warning("a refutation is not complete", position=str(event.position), reason=str(problem))
    return count
