"""The base of every part of the benchmark: a private engine, sample observations, and sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis

from scratchbus import AsyncBus, Bus, NewObservation
from scratchbus.engine.embedded.server import ensure_running, stop
from scratchbus.eventlog.checkpoint import Checkpoint, Outcome, checkpoint_key
from scratchbus.page import Page
from scratchbus.readmodel.catch_up import MAX_CHUNKS, fold_once

ROOT = Path(__file__).parents[2]

BATCH = 500
"""Observations in a batch."""

CONTENT = 400
"""Bytes of the content of an observation."""

ROOM = 10_000_000
"""Room for all open observations, where displacing is not measured."""

TYPES = ("risk_alert", "observation")
TAGS = ("network", "login", "disk", "billing", "mail")
"""Types and tags alternate in cycles of 2 and 5, so each pair of type and tag is on a tenth of the observations."""

_PROSE = "what was seen, put into a few plain words; " * 10


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a measurement."""

    rounds: int
    adds: int
    batches: int
    backlog: int
    reads: int
    small_page: int
    large_page: int
    memory: tuple[int, ...]
    followers: int
    published: int
    audited: int
    starts: int
    notes: int
    facts: int


FULL = Sizes(
    rounds=7, adds=1_000, batches=4, backlog=10_000, reads=200, small_page=1_000, large_page=100_000,
    memory=(10_000, 15_000, 20_000, 25_000), followers=200, published=500, audited=200_000, starts=9,
    notes=10_000,
    facts=100_000,
)  # fmt: skip
QUICK = Sizes(
    rounds=5, adds=300, batches=2, backlog=3_000, reads=50, small_page=1_000, large_page=10_000, memory=(5_000,),
    followers=40, published=300, audited=10_000, starts=3,
    notes=1_000,
    facts=10_000,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    """A private engine and both ways to use it: buses, and bare redis-py."""

    url: str
    socket: Path
    bare: redis.Redis
    _opened: ExitStack

    def bus(self, name: str, room: int = ROOM) -> Bus:
        """Open a new bus on the engine; it is closed with the stage."""
        return self._opened.enter_context(Bus.connect(self.url, source="bench", bus=name, max_observations=room))

    def filled(self, name: str, count: int) -> Bus:
        """Open a new bus with `count` open observations, all folded."""
        bus = self.bus(name)
        fill(bus.page(), count)
        catch_up(bus)
        return bus

    async def async_bus(self, name: str) -> AsyncBus:
        """Open a new asyncio bus on the engine; the caller closes it."""
        return await AsyncBus.connect(self.url, source="bench", bus=name, max_observations=ROOM)

    def entries(self, bus: Bus, count: int) -> list[dict[Any, Any]]:
        """Return the newest entries of a bus's log, for a bare client to write."""
        rows: Any = self.bare.xrevrange(bus.core.log.keys(0).log, count=count)
        return [fields for _, fields in rows]

    def log_entries(self, log: str) -> Iterator[Any]:
        """Yield the entries of a log, read in batches by a bare client."""
        after = "-"
        while True:
            rows: Any = self.bare.xrange(log, min=after, count=BATCH)
            if not rows:
                return
            yield from rows
            after = f"({rows[-1][0].decode()}"

    def forget_folded(self, bus: Bus) -> None:
        """Delete the folded state of a bus, so that its whole log is a backlog again."""
        keys = bus.core.log.keys(0)
        self.bare.delete(checkpoint_key(keys), *self.bare.scan_iter(f"{keys.tag}p1:*", count=10_000))


@contextmanager
def open_stage() -> Iterator[Stage]:
    """Start an engine in a temporary directory; stop and delete both at the end."""
    with TemporaryDirectory(prefix="scratchbus-bench-") as name, ExitStack() as opened:
        directory = Path(name) / "engine"
        opened.callback(stop, directory, timeout=60.0)
        engine = ensure_running(directory)
        bare = opened.enter_context(redis.Redis(unix_socket_path=str(engine.socket)))
        yield Stage(f"embedded:{directory}", engine.socket, bare, opened)


def ignore_settings() -> None:
    """Delete the settings of the user from the environment, because they must not change the figures."""
    for name in [name for name in os.environ if name.startswith("SCRATCHBUS_")]:
        del os.environ[name]


def given(number: int) -> dict[str, Any]:
    """Return the arguments to add observation `number`."""
    return {
        "type": TYPES[number % len(TYPES)],
        "content": f"{number:08d} {_PROSE}"[:CONTENT],
        "tags": [TAGS[number % len(TAGS)]],
    }


def add_each(page: Page, items: Iterable[dict[str, Any]]) -> None:
    """Add observations one at a time."""
    for item in items:
        page.add(**item)


def ack_each(bus: Bus, name: str, count: int) -> None:
    """Handle the first `count` events with a new subscription."""
    with bus.subscribe(name) as deliveries:
        for delivery in islice(deliveries, count):
            delivery.ack()


def sighting(number: int, apart: int) -> dict[str, Any]:
    """Return the arguments to add observation `number`, which is seen again `apart` observations later."""
    return given(number) | {"dedupe_key": f"key-{number % apart}"}


def fill(page: Page, count: int, item: Callable[[int], dict[str, Any]] = given) -> list[str]:
    """Add `count` observations in batches; return their ids."""
    ids: list[str] = []
    for first in range(0, count, BATCH):
        batch = [NewObservation(**item(number)) for number in range(first, min(first + BATCH, count))]
        ids += [observation.id for observation in page.add_many(batch)]
    return ids


def catch_up(bus: Bus) -> int:
    """Fold and commit, as a projector does, until nothing is left; return the number of events."""
    known: Checkpoint | None = None
    total = 0
    while True:
        folded, known = bus.converse(fold_once(bus.core.log, 0, known, max_chunks=MAX_CHUNKS))
        total += folded.events
        if folded.is_all and folded.outcome is Outcome.DONE:
            return total


def lag(bus: Bus) -> int:
    """Return how many events of a bus are not folded and committed."""
    return bus.status().shards[0].lag
