"""Reactions to events: the reminders that wait for them, and the reviews after a refutation."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from scratchbus.commands.dependents import complete
from scratchbus.domain.events import AnyEvent, Due, Event, StatusChanged
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import START, BusPosition, Position
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import LogGap, LogRewound, NotFound, PositionLost, VersionConflict
from scratchbus.eventlog import reader
from scratchbus.eventlog.append import append
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.ids import new_event_id
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.narrow import Narrow, decode_wanted
from scratchbus.eventlog.raw_entries import entry_position
from scratchbus.eventlog.reader import Chunks
from scratchbus.eventlog.stored_documents import decode_observations
from scratchbus.eventlog.writes import Op, Write
from scratchbus.projections.filters import Filter
from scratchbus.projections.scratch_page import evolve
from scratchbus.readmodel.history import history
from scratchbus.readmodel.queries import get, look
from scratchbus.readmodel.scope import Core
from scratchbus.readmodel.search import search
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

HAPPENINGS = ("added", "repeated", "updated", "status_changed")
"""The kinds of events that a reminder may wait for: changes of an observation, not its claims."""

Life = dict[int, Observation | None]
"""An observation after each of its events, by the event's seq."""

logger = stderr_logger()


def react(core: Core) -> Step[tuple[dict[int, Position], bool]]:
    """Process the next events; return the new positions by shard, and whether they advanced.

    The engine stores the positions. Processing an event twice is harmless.
    """
    key = core.log.keys(0).cursor("reminders")
    row = yield from ask(0, "GET", key)
    places, chunks, has_moved = yield from _next(core.log, row.decode() if row else None)
    if has_moved:
        events = decode_wanted(chunks, Narrow.of(None, None, HAPPENINGS))
        yield from complete_all(core, events)
        yield from remind(core, events)
        yield from ask(0, "SET", key, str(BusPosition(tuple(places))))
    return {place.shard: place for place in places}, has_moved


def _next(log: Log, after: str | None) -> Step[tuple[list[Position], Chunks, bool]]:
    """Return the end of the next events, the events by shard, and whether the end advanced.

    It continues after missing events: they will not come back, and reminders for other events must not wait for ever.
    """
    try:
        at = yield from cursors(log, after)
        chunks = yield from reader.read(log, at)
    except (PositionLost, LogGap, LogRewound) as lost:
        places, chunks, missing = yield from _read_past(log, after)
        counts.missed += missing
        logger.warning("reminders continue after missing events", events=missing, reason=str(lost))
        return places, chunks, True
    return [cursor.position for cursor in at], chunks, bool(chunks)


def _read_past(log: Log, after: str | None) -> Step[tuple[list[Position], Chunks, int]]:
    """Return the same for events after a position, and the number of missing events in between.

    A log that ends before the position is a different one, and is read from its start.
    """
    starts = BusPosition.parse(after).shards if after else (START,) * log.shards
    places, chunks, missing = [], [], 0
    for shard, known in enumerate(starts):
        for start in (known._replace(shard=shard), START._replace(shard=shard)):
            walk = LogReader(log, start, chunk=reader.CHUNK, skips_lost=True)
            found = yield from walk.read(("GET", log.keys(shard).tail))
            entries, end = found.entries, end_of(found.replies[0], shard)
            if start <= end and (not entries or entry_position(entries[0], shard).seq > start.seq):
                break
        if entries:
            chunks.append((shard, entries))
            end = walk.at
        places.append(end)
        missing += end.seq - start.seq - len(entries)
    return places, chunks, missing


def remind(core: Core, events: list[AnyEvent]) -> Step[int]:
    """Append `due` for the open reminders that wait for one of these events; return their number.

    The events come in log order, and the first match is the trigger. An event is matched by the state of its
    observation right after it, whatever happened since.
    """
    count = 0
    by_page: dict[str, list[AnyEvent]] = defaultdict(list)
    for event in events:
        by_page[event.page].append(event)
    for page, some in by_page.items():
        waiting = yield from search(core.log, page, core.fresh, Filter(waiting=True), None, None)
        some = [event for event in some if any(_may_wait_for(reminder, event) for reminder in waiting)]
        lives = yield from _last_moments(core, page, {event.subject for event in some})
        for event in some:
            subject = yield from _as_left(core, event, lives[event.subject])
            for reminder in [each for each in waiting if subject is not None and _waits_for(each, event, subject)]:
                waiting.remove(reminder)
                count += yield from _fall_due(core, reminder, event)
    return count


def _may_wait_for(reminder: Observation, event: Event) -> bool:
    """Return whether an event may match a reminder, judged without its observation."""
    return (
        event.kind in HAPPENINGS
        and reminder.id != event.subject
        and reminder.added < event.position
        and (reminder.remind_on or {}).get("type", event.type) == event.type
    )


def _waits_for(reminder: Observation, event: Event, subject: Observation) -> bool:
    wanted = reminder.remind_on or {}
    return (
        _may_wait_for(reminder, event)
        and wanted.get("status", subject.status) == subject.status
        and set(wanted.get("tags", ())) <= set(subject.tags)
    )


def _last_moments(core: Core, page: str, subjects: set[str]) -> Step[dict[str, Life]]:
    """Return, for each subject, its current document by the seq of its last event."""
    lives: dict[str, Life] = {subject: {} for subject in subjects}
    if subjects:
        seen = yield from look(core.log, page, core.fresh, "get", *subjects)
        for document in (*decode_observations(seen.rows), *filter(None, seen.overlay.values())):
            if document.id in lives:
                lives[document.id][document.seq] = document
    return lives


def _as_left(core: Core, event: Event, life: Life) -> Step[Observation | None]:
    """Return the observation right after an event, from its known states or else from its history."""
    if event.kind == "added":
        return evolve(None, event)
    if event.seq not in life:
        now = life[max(life)] if life else None
        try:
            past = yield from history(core.log, event.page, event.subject)
        except PositionLost as lost:
            logger.warning("reminders use its current state", position=str(event.position), reason=str(lost))
            return now
        state: Observation | None = None
        for each in past:
            with suppress(ValueError, TypeError, OverflowError):  # the projection rejects events that cannot be folded
                state = evolve(state, each)
            life[each.seq] = state
    return life.get(event.seq)


def _fall_due(core: Core, reminder: Observation, event: Event) -> Step[bool]:
    """Append `due` unless the reminder has fallen due or closed meanwhile."""
    now: Observation | None = reminder
    while now is not None and now.is_open and now.remind_on is not None:
        due = Due(
            id=new_event_id(),
            page=now.page,
            subject=now.id,
            type=now.type,
            by=core.by,
            cause=str(event.position),
            trigger=str(event.position),
        )
        try:
            yield from append(core.log, now.page, [Write(due, Op.NOTE, version=now.version, wake="0")])
            return True
        except (VersionConflict, NotFound):
            now = (yield from get(core.log, now.page, [now.id], core.fresh)).get(now.id)
    return False


def complete_all(core: Core, events: list[AnyEvent]) -> Step[int]:
    """Finish the refutations among these events if their writer is gone; return the number of reviews appended.

    Both may run concurrently; each observation is sent to review once.
    """
    count = 0
    for event in events:
        if isinstance(event, StatusChanged) and event.reason_code == "refuted":
            count += yield from complete(core, event)
    return count
