"""Processes that rebuild the state, or read while it is rebuilt."""

from __future__ import annotations

import threading
from pathlib import Path

from scratchbus import Bus
from scratchbus.readmodel import rebuild_lease as leases

LEASE_MS = 500
"""How long the lease of a killed rebuild lasts; the default is longer."""


def rebuild(url: str, bus: str, said: Path) -> None:
    """Rebuild, and hang after the first progress, so that a test can kill it there; write the progress to `said`."""

    def note(done: int, total: int) -> None:
        if done:
            said.write_text(f"{done}/{total}")
            threading.Event().wait()

    leases.LEASE_MS = LEASE_MS
    with Bus.connect(url, bus=bus, source="rebuild") as connected:
        connected.rebuild(note)


def read(url: str, bus: str, count: int, stop: Path, said: Path) -> None:
    """Read an unchanging page in every way until the file `stop` exists; write whether anything is missing."""
    with Bus.connect(url, bus=bus, source="reader") as connected, said.open("a", buffering=1) as file:
        page = connected.page("still")
        first = page.list(limit=None)
        assert len(first) == count
        while True:
            looks = {
                "list": page.list(limit=None),
                "walked": [*page.list(limit=7), *page.list(limit=None, after=page.list(limit=7)[-1])],
                "tags": page.list(tags=["t"], limit=None),
                "trace": page.trace("goal").observations,
                "events": list(connected.events(pages=["still"])),
                "active": page.active(),
            }
            sizes = {name: len(found) for name, found in looks.items()}
            wanted = dict.fromkeys(sizes, count) | {"events": count + 1, "trace": 2}
            file.write("whole\n" if sizes == wanted else f"{sizes}\n")
            if stop.exists():
                return
