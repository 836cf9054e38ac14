"""Time as events: expiry, auto-archive, lapsed claims, reminders. Any number of expirers may run; each fires once."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from scratchbus.core import Core, Host
from scratchbus.counts import counts
from scratchbus.domain.events import Due, Event, Lapsed, StatusChanged
from scratchbus.domain.lifecycle import ARCHIVED
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import BusPosition, Position
from scratchbus.errors import NotFound, PositionLost, VersionConflict
from scratchbus.folding import catch_up
from scratchbus.ids import new_event_id
from scratchbus.log.append import append
from scratchbus.log.codec import Head
from scratchbus.log.keys import PageKeys
from scratchbus.log.reading import Narrow, cursors, decode_wanted, read
from scratchbus.log.steps import Call, Script, Step, ask
from scratchbus.log.writes import Write
from scratchbus.logs import stderr_logger
from scratchbus.projections.scratch_page import evolve
from scratchbus.queries import Filter, get, history, look, search
from scratchbus.refutation import complete

_DUE = Script("due", only_reads=True)
AT_ONCE = 500
"""How many due observations one look takes."""

HAPPENINGS = ("added", "repeated", "updated", "status_changed")
"""The kinds of events that a reminder may wait for: what says how an observation is, not who deals with it."""

Life = dict[int, Observation | None]
"""An observation as each of its events left it, by the event's seq."""

logger = stderr_logger()


def sweep(core: Core) -> Step[int]:
    """Append what time has brought, on all shards; return how many events that were."""
    count = 0
    counts.sweeps += 1
    for shard in range(core.log.shards):
        looked = AT_ONCE
        while looked == AT_ONCE:
            build = yield from catch_up(core.log, shard)  # what is due is an index of the projection
            looked, done = yield from _sweep_some(core, shard, build)
            count += done
    return count


def _sweep_some(core: Core, shard: int, build: int) -> Step[tuple[int, int]]:
    keys = core.log.keys(shard)
    due = PageKeys(keys, "", build).due
    (reply,) = yield Call(shard, (_DUE.command((due, keys.tail), (keys.heads(""), AT_ONCE)),))
    now, rows = reply[0], reply[1:]
    by_page: dict[str, list[Write]] = defaultdict(list)
    for member, row in zip(rows[::2], rows[1::2], strict=True):
        subject, _, page = member.decode().partition("@")
        write = _due_write(core, page, subject, Head.parse(row), now) if row else None
        if write is not None:  # else the head has moved on, and the projection follows
            by_page[page].append(write)
    done = 0
    for page, writes in by_page.items():
        appended = yield from append(core.log, page, writes, mode="each")
        recalled = len(appended.recalled or ())
        done += recalled + sum(row.position.seq > 0 for row in appended.written)
        what = {write.event.subject: _what_time_did(write.event) for write in writes}
        for row in appended.written:
            if row.position.seq:
                counts.fallen_due[what[row.subject]] += 1
    return len(rows) // 2, done


def _what_time_did(event: Event) -> str:
    return event.reason_code if isinstance(event, StatusChanged) else event.kind


def _due_write(core: Core, page: str, subject: str, head: Head, now: int) -> Write | None:
    """Return the event for the moment that has come, guarded on the head as it was read."""
    common: dict[str, Any] = {
        "id": new_event_id(), "page": page, "subject": subject, "type": head.type, "by": core.by,
    }  # fmt: skip
    archived: dict[str, Any] = {"status": ARCHIVED, "status_class": "final"}
    if head.status_class == "o" and 0 < head.expires <= now:
        event: Event = StatusChanged(reason_code="expired", **archived, **common)
        return Write(event, "x", version=head.version, **archived)
    if head.holder and head.until <= now:
        return Write(Lapsed(**common), "l", fence=head.fence)
    if 0 < head.wake <= now:
        if head.status_class == "o":
            return Write(Due(**common), "n", version=head.version, wake="0")
        event = StatusChanged(reason_code="auto_archived", **archived, **common)
        return Write(event, "x", version=head.version, **archived)
    return None


# -- reminders that wait for an event -----------------------------------------------------------------------------


def remind(core: Core, events: list[Event]) -> Step[int]:
    """Append `due` for the open reminders that wait for one of these events; return how many that were.

    The events come in the order of the log, and the first that matches is the trigger. What counts is how an event
    left its observation, whatever has become of that since.
    """
    count = 0
    by_page: dict[str, list[Event]] = defaultdict(list)
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
    """Say whether an event is for a reminder, as far as that shows without its observation."""
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
    """Return of each life what the page has: how the last event left it."""
    lives: dict[str, Life] = {subject: {} for subject in subjects}
    if subjects:
        seen = yield from look(core.log, page, core.fresh, lambda _: (), "get", *subjects)
        for document in (*seen.found, *filter(None, seen.overlay.values())):
            if document.id in lives:
                lives[document.id][document.seq] = document
    return lives


def _as_left(core: Core, event: Event, life: Life) -> Step[Observation | None]:
    """Return the observation as an event left it, from what is known of its life, else from its history."""
    if event.kind == "added":
        return evolve(None, event)
    if event.seq not in life:
        now = life[max(life)] if life else None
        try:
            past = yield from history(core.log, event.page, event.subject)
        except PositionLost as lost:
            logger.warning("reminders go by what it is now", position=str(event.position), reason=str(lost))
            return now
        state: Observation | None = None
        for each in past:
            with suppress(ValueError, TypeError, OverflowError):  # the projection sets aside what cannot be folded
                state = evolve(state, each)
            life[each.seq] = state
    return life.get(event.seq)


def _fall_due(core: Core, reminder: Observation, event: Event) -> Step[bool]:
    """Append `due` unless the reminder has fallen due, or closed, meanwhile."""
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
            yield from append(core.log, now.page, [Write(due, "n", version=now.version, wake="0")])
            return True
        except (VersionConflict, NotFound):
            now = (yield from get(core.log, now.page, [now.id], core.fresh)).get(now.id)
    return False


# -- refutations ------------------------------------------------------------------------------------------------------


def complete_all(core: Core, events: list[Event]) -> Step[int]:
    """Go on with the refutations among these events, should who began them be gone; return how many reviews that were.

    The two may well be at it together; each observation is sent to review once.
    """
    count = 0
    for event in events:
        if isinstance(event, StatusChanged) and event.reason_code == "refuted":
            count += yield from complete(core, event)
    return count


# -- the daemon ---------------------------------------------------------------------------------------------------


def run_expirer(bus: Host, stop: threading.Event) -> None:
    """Sweep on a schedule, and follow the log for reminders and refutations, until `stop` is set.

    Raises what either of them raises, such as EngineError when the engine goes away.
    """
    interval = bus.settings.seconds("sweep_interval")
    failures: list[Exception] = []
    # The debug executor runs jobs in the scheduler's own thread, a daemon. The threads of APScheduler's pool are joined
    # when the interpreter exits, so that an engine that hangs would keep the process from ending.
    scheduler = BackgroundScheduler(
        executors={"default": DebugExecutor()},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone=UTC,
    )
    scheduler.add_job(_sweep_job, "interval", (bus, failures), seconds=interval, next_run_time=datetime.now(UTC))
    scheduler.start()
    try:
        _follow_reminders(bus, stop, failures)
    finally:
        scheduler.shutdown()


def _sweep_job(bus: Host, failures: list[Exception]) -> None:
    try:
        count = bus.run(sweep(bus.core))
    except Exception as problem:  # raised where reminders are followed
        failures.append(problem)
        return
    if count:
        logger.info("time has come", events=count)


def _follow_reminders(bus: Host, stop: threading.Event, failures: list[Exception]) -> None:
    """Remember in the engine how far reminders were looked for, so that none is missed while no expirer runs."""
    while not stop.is_set():
        if failures:
            raise failures[0]
        places, moved = bus.run(_next_reminders(bus.core))
        if not moved:
            bus.wait_for_events(places)


def _next_reminders(core: Core) -> Step[tuple[dict[int, Position], bool]]:
    key = core.log.keys(0).cursor("reminders")
    row = yield from ask(0, "GET", key)
    places = yield from cursors(core.log, row.decode() if row else None)
    chunks = yield from read(core.log, places)
    if chunks:
        events = decode_wanted(chunks, Narrow.of(None, None, HAPPENINGS))
        yield from complete_all(core, events)
        yield from remind(core, events)
        reached = BusPosition(tuple(place.position for place in places))
        yield from ask(0, "SET", key, str(reached))  # to say it twice does no harm
    return {place.position.shard: place.position for place in places}, bool(chunks)
