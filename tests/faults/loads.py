"""Threads that write and follow while servers are killed or slots move, and record the answers."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

from scratchbus import Bus
from scratchbus.errors import EngineError, LogRewound
from tests.threads import Threads
from tests.waiting import eventually

PAGES = 12
"""The number of pages that all writers write to in turn."""


class Load(Threads):
    """Writers with one bus each, which retry each write with the same event id until it is acknowledged."""

    def __init__(self, url: str, bus: str, **settings: Any) -> None:
        super().__init__(*(partial(self._write, url, bus, name, settings) for name in ("w0", "w1", "w2")))
        self.acknowledged: list[str] = []
        self.troubles: set[str] = set()

    def wait_for(self, more: int) -> None:
        """Wait until this many more writes are acknowledged."""
        goal = len(self.acknowledged) + more
        eventually(lambda: len(self.acknowledged) >= goal or self.failures)

    def _write(self, url: str, name: str, writer: str, settings: dict[str, Any]) -> None:
        with Bus.connect(url, bus=name, source=writer, max_observations=100_000, **settings) as bus:
            number = 0
            while not self.stop.is_set():
                number += 1
                page, event_id = bus.page(f"page-{number % PAGES}"), f"{writer}-{number}"
                while True:
                    try:
                        page.add("observation", event_id, event_id=event_id, tags=[writer])
                    except EngineError as trouble:
                        self.troubles.add(type(trouble).__name__)
                        if self.stop.wait(0.05):
                            return
                    else:
                        self.acknowledged.append(event_id)
                        break


class Reading(Threads):
    """A follower of all events of a bus, which starts over on LogRewound."""

    def __init__(self, url: str, bus: str) -> None:
        super().__init__(partial(self._follow, url, bus))
        self.rewound = 0
        self.seen: dict[str, list[str]] = defaultdict(list)

    def ids(self) -> set[str]:
        """Return the ids of all events received since the last start."""
        return {id for page in list(self.seen.values()) for id in page}

    def _follow(self, url: str, name: str) -> None:
        with Bus.connect(url, bus=name, source="reader") as bus:
            while not self.stop.is_set():
                try:
                    for event in bus.events(follow=True, stop=self.stop):
                        self.seen[event.page].append(event.id)
                except LogRewound:
                    self.rewound += 1
                    self.seen.clear()
                except EngineError:
                    self.seen.clear()
