"""Functions that tests run as processes, and may kill anywhere."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from scratchbus import Bus, NewObservation
from scratchbus.errors import Conflict, EngineError, LogError, NotFound, ShardsMismatch
from scratchbus.eventlog.ids import new_id
from scratchbus.page import Page
from scratchbus.readmodel.projector import run_projector
from scratchbus.scheduling import paging_out
from scratchbus.scheduling.expiry import run_expirer
from tests.faults.marks import marked

Job = Callable[[Page, Random, str | None, str], object]
"""A write to a page, with an event id or None, and a mark for the body of its event."""

KEYS = [f"key-{number}" for number in range(5)]
_PAUSE = 0.01  # seconds between two attempts to reach the engine


# -- daemons -------------------------------------------------------------------------------------------------------


def project(url: str, bus: str) -> None:
    """Run a projector forever."""
    _serve(url, bus, run_projector)


def expire(url: str, bus: str, interval: str) -> None:
    """Run an expirer forever."""
    _serve(url, bus, run_expirer, sweep_interval=interval)


def page_out(url: str, bus: str, archive: Path | None, fewest: int) -> None:
    """Run an expirer that pages out at once; it moves at least `fewest` index entries to the archive at a time."""
    paging_out.MIN_ENTRIES = fewest
    _serve(url, bus, run_expirer, sweep_interval="10ms", keep_final="1ms", archive_url=archive)


def _serve(url: str, name: str, run: Callable[[Bus, threading.Event], None], **settings: Any) -> None:
    never = threading.Event()
    while True:
        try:
            with Bus.connect(url, bus=name, source=run.__name__, **settings) as bus:
                run(bus, never)
        except (EngineError, LogError):
            never.wait(_PAUSE)


# -- a load of writes ----------------------------------------------------------------------------------------------


def write(url: str, bus: str, name: str, stop: Path, said: Path) -> None:
    """Write all kinds of events until the file `stop` exists; write acknowledged ones to `said`."""
    random, client = Random(name), _Client(url, bus, name)
    with said.open("a", buffering=1) as file:  # each line is written at once
        number = 0
        while not stop.exists():
            number += 1
            job, mark = random.choice(JOBS), new_id()
            event_id = f"{name}-{number}" if random.random() < 0.5 else None
            if client.persist(job, random, event_id, mark):
                file.write(json.dumps([event_id, mark]) + "\n")


class _Client:
    """A client that reconnects as often as needed."""

    def __init__(self, url: str, bus: str, source: str) -> None:
        self._connect = lambda: Bus.connect(url, bus=bus, source=source, ack="fsync", max_observations=30)
        self._bus: Bus | None = None

    def persist(self, job: Job, random: Random, event_id: str | None, mark: str) -> bool:
        """Do a job, with retries if it has an event id; return whether it was acknowledged."""
        while True:
            try:
                self._bus = self._bus or self._connect()
                job(self._bus.page(), random, event_id, mark)
                return True
            except (Conflict, NotFound):
                return False
            except EngineError:
                if self._bus is not None:
                    self._bus.close()
                    self._bus = None
                if event_id is None:
                    return False  # the outcome is unknown
                threading.Event().wait(_PAUSE)


def _some(page: Page, random: Random) -> str:
    found = page.list(limit=10)
    if not found:
        raise NotFound("the page is empty")
    return random.choice(found).id


def _add(page: Page, random: Random, event_id: str | None, mark: str) -> None:
    page.add("observation", mark, event_id=event_id, tags=[random.choice("abc")])


def _add_keyed(page: Page, random: Random, event_id: str | None, mark: str) -> None:
    with marked(mark):
        page.add(
            "risk_alert", "again", event_id=event_id, dedupe_key=random.choice(KEYS)
        )  # a type that stays on a full page


def _add_many(page: Page, random: Random, event_id: str | None, mark: str) -> None:
    page.add_many([NewObservation(type="reminder", content=word) for word in ("one", mark, "three")], event_id=event_id)


def _update(page: Page, random: Random, event_id: str | None, mark: str) -> None:
    page.update(_some(page, random), content=mark, event_id=event_id)


def _link(page: Page, random: Random, event_id: str | None, mark: str) -> None:
    page.link(_some(page, random), mark, event_id=event_id)


def _claim(page: Page, random: Random, event_id: str | None, mark: str) -> None:
    page.claim(_some(page, random), by=mark, ttl="50ms", event_id=event_id)


def _resolve(page: Page, random: Random, event_id: str | None, mark: str) -> None:
    page.resolve(_some(page, random), reason=mark, event_id=event_id)


def _reopen(page: Page, random: Random, event_id: str | None, mark: str) -> None:
    page.reopen(_some(page, random), reason=mark, event_id=event_id)


JOBS: list[Job] = [_add, _add, _add, _add_keyed, _add_keyed, _add_many, _update, _link, _claim, _resolve, _reopen]


# -- contention ----------------------------------------------------------------------------------------------------


def contend(url: str, bus: str, name: str, ids: list[str], barrier: Any, wins: Any) -> None:
    """Claim, release, resolve, reopen and archive the same observations as all others at once; report the successes."""
    random = Random(name)
    with Bus.connect(url, bus=bus, source=name) as connected:
        page = connected.page()
        races: dict[str, Callable[[str], object]] = {
            "claimed": page.claim,
            "released": page.release,
            "resolved": page.resolve,
            "reopened": page.reopen,
            "archived": page.archive,
        }
        for race, act in races.items():
            barrier.wait()
            for id in random.sample(ids, len(ids)):
                try:
                    act(id)
                except Conflict:
                    continue
                wins.put((race, id, name))
    wins.put(None)


def crowd(url: str, bus: str, name: str, jobs: int, barrier: Any, counts: Any) -> None:
    """Do random jobs on a full page with shared dedupe keys; report the number of each."""
    random, done = Random(name), Counter[str]()
    with Bus.connect(url, bus=bus, source=name, max_observations=12) as connected:
        page = connected.page()
        barrier.wait()
        for number in range(jobs):
            job = random.choice(JOBS)
            try:
                job(page, random, None, f"{name}.{number}" if job is not _add_keyed else new_id())
            except (Conflict, NotFound):
                continue
            done[job.__name__] += 1
    counts.put((name, done))


# -- connecting ----------------------------------------------------------------------------------------------------


def connect(url: str, bus: str, name: str, shards: int, barrier: Any, got: Any) -> None:
    """Connect when all others do, write one event, and report the number of shards, or None if refused."""
    barrier.wait()
    try:
        with Bus.connect(url, bus=bus, source=name, shards=shards) as connected:
            connected.page(f"page-of-{name}").add("observation", "here")
            got.put(connected.core.log.shards)
    except ShardsMismatch:
        got.put(None)
