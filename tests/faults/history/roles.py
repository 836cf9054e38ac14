"""The roles of the processes of a round. Each records its calls and answers until it is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from scratchbus import Bus, Observation
from scratchbus.archive.archiver import archive_bus
from scratchbus.errors import (
    ArchiveBusy,
    ArchiveError,
    Conflict,
    EngineError,
    LogError,
    NotFound,
    ScratchbusError,
    StateTooOld,
    SubscriptionHeld,
)
from scratchbus.readmodel.rebuild import renew
from scratchbus.readmodel.status import read_subscriptions
from scratchbus.views.view import View
from tests.faults import workers
from tests.faults.history.archives import TERMS, Archives
from tests.faults.history.journal import Journal
from tests.faults.history.sabotage import SABOTAGE
from tests.faults.history.writing import claim, publish, work

BUS = "rounds"
SHOWN = 20
"""The number of observations that readers and views look at."""

SUBSCRIPTIONS: dict[str, dict[str, Any]] = {
    "everything": {},
    "alerts": {"kinds": ["added"], "types": ["risk_alert"]},
}
"""The subscriptions and their filters; each has two consumers."""

KEPT = 1_000_000  # bytes of a journal in a soak
PAUSE = 0.02  # seconds between two attempts to reach the engine


class Part(NamedTuple):
    """The part of a process: its role, its number within the role, and how often it was started before.

    With a pace above 1 its pauses are that many times as long, and it keeps only the last of its records.
    """

    url: str
    directory: Path
    role: str
    number: int
    start: int
    seed: int
    sabotage: Collection[str] = ()
    pace: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.role}-{self.number}.{self.start}"

    @property
    def random(self) -> Random:
        return Random(f"{self.seed} {self.name}")

    @property
    def archives(self) -> Path:
        return self.directory / "archive"

    @property
    def is_over(self) -> bool:
        """Whether writers must end."""
        return (self.directory / "stop").exists()

    def rest(self, seconds: float) -> None:
        """Sleep, scaled by the pace."""
        time.sleep(seconds * self.pace)

    @contextmanager
    def connected(self, **settings: Any) -> Iterator[Bus]:
        """Yield an open bus, after as many attempts as needed."""
        while True:
            try:
                bus = Bus.connect(
                    self.url, bus=BUS, source=self.name, max_observations=60, subscription_lease="500ms",
                    socket_timeout="2s", connect_timeout="1s", archive_url=self.archives, **TERMS, **settings,
                )  # fmt: skip
                bus.core.log.archive = Archives(self.archives, BUS)
                break
            except ScratchbusError:
                time.sleep(PAUSE)
        with bus:
            yield bus


def play(part: Part) -> None:
    """Play a part; record any unexpected error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends it
    with (part.directory / "stderr").open("ab") as stderr:
        os.dup2(stderr.fileno(), 2)
    journal = Journal(part.directory / f"{part.name}.jsonl", KEPT if part.pace > 1 else None)
    for name in part.sabotage:
        SABOTAGE[name]()
    try:
        ROLES[part.role](part, journal)
    except BaseException:
        journal.note("crashed", trace=traceback.format_exc())
        raise


def subscribe(part: Part, journal: Journal) -> None:
    """Consume a subscription in sessions; after an error start another, with a reset if the log requires it."""
    name, random, reset = list(SUBSCRIPTIONS)[part.number // 2], part.random, False
    with part.connected() as bus:
        while True:
            journal.note("session", sub=name, reset=reset)
            try:
                _session(bus, name, reset, random, journal)
                reset = False
            except LogError as problem:
                journal.note("log error", sub=name, why=type(problem).__name__)
                reset = not reset
            except (Conflict, NotFound, EngineError) as problem:
                journal.note("ended", sub=name, why=type(problem).__name__)
                reset = reset and not isinstance(problem, SubscriptionHeld)  # the holder has reset it
            time.sleep(PAUSE)


def _session(bus: Bus, name: str, reset: bool, random: Random, journal: Journal) -> None:
    maximum = random.randint(50, 300)
    with bus.subscribe(name, reset=reset, max_attempts=8, retry_delay="50ms", **SUBSCRIPTIONS[name]) as deliveries:
        for delivery in islice(deliveries, maximum):
            at = delivery.position
            journal.note("handed", sub=name, at=[at.ms, at.seq], id=delivery.event.id, attempt=delivery.attempt)
            if random.random() < 0.01:
                delivery.fail("on purpose", delay="50ms")
            else:
                delivery.ack()
                journal.note("acked", sub=name, seq=at.seq)


def watch(part: Part, journal: Journal) -> None:
    """Keep a view of a page; record its contents between batches, and all of its changes."""
    with part.connected() as bus:
        while True:
            try:
                with bus.view("main") as view:
                    _look_at(part, bus, view, journal)
            except StateTooOld:  # an older version has started the log after a flush
                bus.converse(renew(bus.core))
            except EngineError:
                pass
            time.sleep(PAUSE)


def _look_at(part: Part, bus: Bus, view: View, journal: Journal) -> None:
    threading.Thread(target=_note_changes, args=(view, journal), daemon=True).start()
    for turn in count():
        asked = time.monotonic()
        floor = _caught_up(bus, view) if turn % 10 == 0 else None
        before = view.position
        rows = _rows(view.list(limit=SHOWN))
        if view.position == before:
            journal.note("saw", at=[before.ms, before.seq], rows=rows, asked=asked, floor=floor)
        part.rest(PAUSE)


def _caught_up(bus: Bus, view: View) -> int | None:
    """Wait until the view has reached the end of the log; return its seq, or None after an error."""
    try:
        end = bus.position()
        view.wait_for(end, "1s")
    except (EngineError, LogError):
        return None
    return end.shards[0].seq


def _note_changes(view: View, journal: Journal) -> None:
    journal.note("changes begin")
    for change in view.changes():
        if change.event is None:
            journal.note("resync" if change.is_resync else "damaged", why=change.reason)
        else:
            journal.note("change", at=[change.event.ms, change.event.seq], id=change.event.id)


def read(part: Part, journal: Journal) -> None:
    """Make fresh reads of a page."""
    with part.connected() as bus:
        page = bus.page("main")
        while True:
            begun = time.monotonic()
            try:
                rows = _rows(page.list(limit=SHOWN))
                journal.note("read", begun=begun, rows=rows)
            except (EngineError, LogError) as problem:
                journal.note("not read", why=type(problem).__name__)
            part.rest(PAUSE)


def _rows(observations: list[Observation]) -> list[tuple[str, int, int]]:
    return [(one.id, one.version, one.seq) for one in observations]


def follow(part: Part, journal: Journal) -> None:
    """Follow the log; continue after errors of the engine, and start over when the log was replaced."""
    with part.connected() as bus:
        after = None
        while True:
            journal.note("following", after=after and [after.ms, after.seq])
            try:
                for event in bus.events(after=after, follow=True):
                    journal.note("followed", at=[event.ms, event.seq], id=event.id)
                    after = event.position
            except LogError as problem:
                journal.note("log error", why=type(problem).__name__)
                after = None
            except EngineError:
                time.sleep(PAUSE)


def observe(part: Part, journal: Journal) -> None:
    """Record the cursors and holders of the subscriptions."""
    with part.connected() as bus:
        while True:
            begun = time.monotonic()
            try:
                for each in bus.converse(read_subscriptions(bus.core)):
                    since = each.since and each.since.timestamp()
                    seq = int(each.cursor.rpartition("-")[2])
                    journal.note("sample", sub=each.name, begun=begun, seq=seq, holder=each.holder, since=since)
            except (EngineError, LogError) as problem:
                journal.note("not read", why=type(problem).__name__)
            part.rest(0.05)


def project(part: Part, journal: Journal) -> None:
    """Run a projector."""
    workers.project(part.url, BUS)


def expire(part: Part, journal: Journal) -> None:
    """Run an expirer."""
    workers.expire(part.url, BUS, "200ms")


def archive(part: Part, journal: Journal) -> None:
    """Run an archiver; record each completed run."""
    with part.connected() as bus:
        while True:
            with suppress(ArchiveBusy, ArchiveError, EngineError, LogError):  # for example after a flush
                for done in archive_bus(bus, patience=60.0, lease=1.0):
                    journal.note("archived", events=done.events, trimmed=done.trimmed)
            time.sleep(0.2)


ROLES: dict[str, Callable[[Part, Journal], None]] = {
    "publisher": publish,
    "claimer": claim,
    "worker": work,
    "subscriber": subscribe,
    "viewer": watch,
    "reader": read,
    "follower": follow,
    "projector": project,
    "expirer": expire,
    "archiver": archive,
    "observer": observe,
}

CREW = {
    "publisher": 2,
    "claimer": 2,
    "worker": 2,
    "subscriber": 4,
    "viewer": 1,
    "reader": 1,
    "follower": 1,
    "projector": 2,
    "expirer": 1,
    "archiver": 2,
}
"""The number of processes of each role that are killed and paused; one observer runs beside them."""
