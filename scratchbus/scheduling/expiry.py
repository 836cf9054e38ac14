"""Time as events: expiry, auto-archive, lapsed claims, reminders. Any number of expirers may run; each fires once."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from scratchbus.commands.files import evict_all
from scratchbus.domain.event import Event
from scratchbus.domain.lifecycle import ARCHIVED
from scratchbus.domain.page_events import Due, Lapsed, StatusChanged
from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Call, Step, ask_all
from scratchbus.errors import ArchiveError, LogError, ScratchbusError
from scratchbus.eventlog.append import append
from scratchbus.eventlog.checkpoint import checkpoint_key, read_unchecked
from scratchbus.eventlog.ids import new_event_id
from scratchbus.eventlog.lag import in_ms
from scratchbus.eventlog.layouts import LUA, Head
from scratchbus.eventlog.log_wait import LogWait, waiting
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.eventlog.writes import Op, Write
from scratchbus.readmodel.catch_up import await_fold
from scratchbus.readmodel.scope import Core, Host
from scratchbus.scheduling.paging_out import PageOut, page_out
from scratchbus.scheduling.recurring import fill_slot, recurs
from scratchbus.scheduling.reminders import react
from scratchbus.scheduling.steady_jobs import SteadyJobStore
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

AT_ONCE = 500
"""The due observations read at a time."""

logger = stderr_logger()


@lua_script("eventlog/clock", "scheduling/due", only_reads=True, constants=LUA)
def read_due(*, checkpoint: Key, tail: Key, skip: int, limit: int) -> None:
    """Read the due observations of a shard, after those that were due first."""


_PATIENCE = 0.25
"""Seconds for which an expirer waits for a projector that stands still before it folds the log itself."""

_MAX_IDLE, _MAX_IDLE_SWEEPS = 5.0, 5
"""The most seconds for which an expirer does not ask what is due, and the most sweeps that it leaves out then."""

_MAX_PAGING_PAUSE = 60.0
"""The most seconds between two checks whether there is something to page out; a hundredth of `keep_final` if less."""


def sweep(core: Core, patience: float = 0.0, is_stopped: Callable[[], bool] = lambda: False) -> Step[int]:
    """Append the events that have fallen due, on all shards; return their number.

    What is due is an index of the projection, which this waits for with `patience` (seconds): see `await_fold`. If a
    shard's log or archive cannot be read or written, raises that error after the other shards. Once `is_stopped`, it
    leaves the rest for later.
    """
    count = 0
    failure: ScratchbusError | None = None
    counts.sweeps += 1
    unchanged = dict.fromkeys(range(core.log.shards), 0)  # by shard that may have more; they take turns
    while unchanged:
        for shard, skip in list(unchanged.items()):
            if is_stopped():
                return count
            try:
                if not (yield from await_fold(core.log, shard, patience)):
                    patience = 0.0  # no projector is at work
                due, remaining, handled = yield from _sweep_batch(core, shard, skip)
            except (LogError, ArchiveError) as problem:
                failure = failure or problem
                del unchanged[shard]
                continue
            unchanged[shard] += remaining  # recurring observations on a full page stay due
            count += handled
            if due < AT_ONCE or not remaining + handled:
                del unchanged[shard]
    if failure is not None:
        raise failure
    return count


def _sweep_batch(core: Core, shard: int, skip: int) -> Step[tuple[int, int, int]]:
    """Return how many observations were due, how many of these stay so for now, and how many events were appended.

    Leaves out the first ones.
    """
    keys = core.log.keys(shard)
    (reply,) = yield Call(shard, (read_due(checkpoint=checkpoint_key(keys), tail=keys.tail, skip=skip, limit=AT_ONCE),))
    now, rows = reply[0], reply[1:]
    by_page: dict[str, list[Write]] = defaultdict(list)
    added = remaining = 0
    for member, row in zip(rows[::2], rows[1::2], strict=True):
        subject, _, page = text_of(member).partition("@")
        head = Head.readable(row)
        write = _due_write(core, page, subject, head, now) if head else None
        if head and write is not None and isinstance(write.event, Due) and recurs(subject, head):
            events = yield from fill_slot(core, page, subject, head, now)
            added, remaining = added + events, remaining + (not events)
        elif write is not None:
            by_page[page].append(write)
        else:  # the head has changed, and the projection follows
            remaining += 1
    handled = added
    for page, writes in by_page.items():
        appended = yield from append(core.log, page, writes, mode="each")
        recalled = len(appended.recalled or ())
        handled += recalled + sum(row.position.seq > 0 for row in appended.written)
        causes = {write.event.subject: _cause_of(write.event) for write in writes}
        for row in appended.written:
            if row.position.seq:
                counts.fallen_due[causes[row.subject]] += 1
    return len(rows) // 2, remaining, handled


def _cause_of(event: Event) -> str:
    return event.reason_code if isinstance(event, StatusChanged) else event.kind


def _due_write(core: Core, page: str, subject: str, head: Head, now: int) -> Write | None:
    """Return the event that is due, guarded on the head as read."""
    common: dict[str, Any] = {
        "id": new_event_id(), "page": page, "subject": subject, "type": head.type, "by": core.by,
    }  # fmt: skip
    archived: dict[str, Any] = {"status": ARCHIVED, "status_class": "final"}
    if head.status_class == "o" and 0 < head.expires <= now:
        event: Event = StatusChanged(reason_code="expired", **archived, **common)
        return Write(event, Op.SETTLE, version=head.version, **archived)
    if head.holder and head.until <= now:
        return Write(Lapsed(**common), Op.LAPSE, fence=head.fence)
    if 0 < head.due_at <= now:
        if head.status_class == "o":
            return Write(Due(**common), Op.NOTE, version=head.version, due_at="0")
        event = StatusChanged(reason_code="auto_archived", **archived, **common)
        return Write(event, Op.SETTLE, version=head.version, **archived)
    return None


def run_expirer(bus: Host, stop: threading.Event) -> None:
    """Sweep on a schedule, and follow the log for reminders and refutations, until `stop` is set.

    Every hour it evicts private files of sessions on this machine that are too old, or too large together.

    Raises the errors of either, such as EngineError if the engine goes away.
    """
    with waiting(bus.core.log, bus.feeds, stop) as log_wait:
        _run_jobs(bus, stop, log_wait)


def _run_jobs(bus: Host, stop: threading.Event, log_wait: LogWait) -> None:
    interval = bus.core.settings.seconds("sweep_interval")
    failures: list[Exception] = []

    def fail(problem: Exception) -> None:
        failures.append(problem)
        log_wait.end()

    # The debug executor runs jobs in the scheduler's own thread, a daemon. The threads of APScheduler's pool are joined
    # when the interpreter exits, so that an engine that hangs would keep the process from ending.
    scheduler = BackgroundScheduler(
        executors={"default": DebugExecutor()},
        jobstores={"default": SteadyJobStore()},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone=UTC,
    )
    sweeper = _Sweeper(bus, stop, fail)
    scheduler.add_job(sweeper.run, "interval", seconds=interval, next_run_time=datetime.now(UTC))
    scheduler.add_job(_evict_job, "interval", (bus,), hours=1, next_run_time=datetime.now(UTC))
    scheduler.start()
    try:
        while not stop.is_set():
            scheduler.wakeup()  # in case the clock was set just before it began to wait, or its wait follows that clock
            if failures:
                raise failures[0]
            positions, has_moved = bus.converse(react(bus.core))
            if has_moved:
                sweeper.has_news.set()
            else:
                log_wait.wait(positions)
    finally:
        scheduler.shutdown()


def _idle_seconds(core: Core) -> Step[float]:
    """Return the seconds until something may be due, if nothing is appended to the log, which has just been folded.

    They are few, since the clock of an engine may be set.
    """
    seconds = min(_MAX_IDLE, _MAX_IDLE_SWEEPS * core.settings.seconds("sweep_interval"))
    for shard in range(core.log.shards):
        keys = core.log.keys(shard)
        due = keys.page("", (yield from read_unchecked(keys)).build).due
        first, now = yield from ask_all(shard, [("ZRANGE", due, 0, 0, "WITHSCORES"), ("TIME",)])
        if first:
            seconds = min(seconds, (float(first[1]) - in_ms(now)) / 1000)
    return seconds


class _Sweeper:
    """Sweeps and pages out by turns until neither is behind, so that under load one does not hold up the other."""

    def __init__(self, bus: Host, stop: threading.Event, fail: Callable[[Exception], None]) -> None:
        self.has_news = threading.Event()  # events since the last sweep began
        self._idle_until = 0.0
        self._bus = bus
        self._stop = stop
        self._fail = fail
        self._keep_ms = bus.core.settings.ms("keep_final")
        self._pages_out_at = 0.0

    def run(self) -> None:
        """Do what is due, unless it is known that nothing is. An error is raised where reminders are followed."""
        core, is_all = self._bus.core, not self.has_news.is_set() and time.monotonic() < self._idle_until
        while not (is_all or self._stop.is_set()):
            try:
                self.has_news.clear()
                count = self._bus.converse(sweep(core, _PATIENCE, self._stop.is_set))
                documents, is_all = self._page_out()
                self._idle_until = time.monotonic() + self._bus.converse(_idle_seconds(core))
            except Exception as problem:
                self._fail(problem)
                return
            if count:
                logger.info("events fell due", events=count)
            if documents:
                logger.debug("paged out", documents=documents)

    def _page_out(self) -> PageOut:
        """Page out, unless all was paged out shortly before, by the measure of how long it had been kept."""
        if self._keep_ms is None or time.monotonic() < self._pages_out_at:
            return PageOut(0, True)
        paged = self._bus.converse(page_out(self._bus.core, self._keep_ms))
        if paged.is_all:
            self._pages_out_at = time.monotonic() + min(_MAX_PAGING_PAUSE, self._keep_ms / 100_000)
        return paged


def _evict_job(bus: Host) -> None:
    try:
        evicted = bus.converse(evict_all(bus.core))
    except (ScratchbusError, OSError) as problem:  # they stay for another hour
        logger.warning("files were not evicted", problem=str(problem))
        return
    if evicted:
        logger.info("files were evicted", by_session=evicted)
