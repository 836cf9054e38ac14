"""Auditing: a replay against bare `XRANGE`, and reads of the past in a long log against a short one."""

from __future__ import annotations

import ctypes
import gc
import os
from collections import deque
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from scratchbus import Bus, BusPosition
from scratchbus.eventlog.cursor import cursors
from scratchbus.timetravel.fold_page import Documents, fold_events
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.processes import resident, running
from tests.benchmarks.rows import Floor, Row, rates, times
from tests.benchmarks.stage import Sizes, Stage, add_each, catch_up, fill, sighting

SHORT, MIN_EVENTS = 100, 2_000
"""How many times longer the long log is, and the minimum number of events of the short one."""

SEEN = 10
"""Sightings of each observation."""

AGO, LIMIT = 100, 20
"""How many events ago `recent` is, and the limit of its `active`."""

MAX_ABOVE = 200 * 2**20
"""Bytes that a replay may use at most in addition to its result."""


def measure_audit(stage: Stage, sizes: Sizes) -> list[Row]:
    """Measure replay, memory and reads of the past, on a long and a short log."""
    long, short = stage.bus("long"), stage.bus("short")
    then = _add_sightings(long, sizes.audited), _add_sightings(short, max(MIN_EVENTS, sizes.audited // SHORT))
    return [*_replay(stage, sizes, long), *_memory(stage, long), *_past_reads(sizes, (long, short), then)]


def _add_sightings(bus: Bus, count: int) -> BusPosition:
    """Add `count` events, with sightings of an observation far apart, then some; return the position in between."""
    page, apart = bus.page(), max(1, count // SEEN)
    fill(page, count, partial(sighting, apart=apart))
    then = bus.position()
    add_each(page, (sighting(each, apart) for each in range(AGO)))
    catch_up(bus)
    return then


def _replay(stage: Stage, sizes: Sizes, bus: Bus) -> list[Row]:
    """Compare reading, decoding and folding all events of a log with reading them by a bare client."""
    log = bus.core.log.keys(0).log

    taken = interleave(
        min(3, sizes.rounds),
        Side("replay: read, decode, fold", sizes.audited, lambda: replay(bus)),
        Side("bare XRANGE", sizes.audited, lambda: deque(stage.log_entries(log), maxlen=0)),
    )
    ours, theirs = taken
    return [rates(taken, ours, theirs, floor=Floor("ratio", "at least", 0.7))]


def replay(bus: Bus) -> Documents:
    """Fold all events of the page, without its stored documents."""
    documents: Documents = {}
    (cursor,) = bus.converse(cursors(bus.core.log, None))
    end = bus.position().shards[0]
    bus.converse(fold_events(bus.core.log, bus.page().name, cursor, end, documents))
    return documents


def _memory(stage: Stage, bus: Bus) -> list[Row]:
    """Measure how much the peak memory of a replaying process exceeds its memory at the end."""
    if not Path("/proc/self/status").exists():
        return []  # only Linux has it
    with running(_fold_alone, stage.url, bus.core.log.bus) as other:
        above = other.receive()
    return [
        Row("replay: memory above the final state's", "", "bytes", above, floor=Floor("ours", "at most", MAX_ABOVE))
    ]


def _fold_alone(pipe: Connection, url: str, name: str) -> None:
    with Bus.connect(url, bus=name) as bus:
        documents = replay(bus)
        maximum = resident(os.getpid(), "VmHWM")
        gc.collect()
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            libc.malloc_trim(0)
        pipe.send(maximum - resident(os.getpid()))
        assert documents


def _past_reads(sizes: Sizes, buses: tuple[Bus, Bus], then: tuple[BusPosition, BusPosition]) -> list[Row]:
    """Compare histories, and reads of the recent page, in a long and in a short log."""
    pages = [bus.page() for bus in buses]
    ids = [[each.id for each in page.list(limit=sizes.reads)][::-1] for page in pages]
    looks = max(2, sizes.reads // 10)  # each takes as long as many histories
    rows = []

    def histories(at: int) -> None:
        for id in ids[at]:
            pages[at].history(id)

    def moments(at: int) -> None:
        for _ in range(looks):
            pages[at].as_of(then[at]).active(limit=LIMIT)

    for what, look, count in (
        ("history(id)", histories, sizes.reads),
        ("as_of(recent).active(limit=20)", moments, looks),
    ):
        names = [f"in {bus.position().shards[0].seq:,} events" for bus in buses]
        sides = [Side(names[at], count, partial(look, at)) for at in range(len(buses))]
        taken = interleave(sizes.rounds, *sides)
        rows.append(times(taken, *names, what=f"{what} {names[0]}", floor=Floor("ratio", "at most", 2)))
    return rows
