"""Functions that tests of refutations run as processes."""

from __future__ import annotations

import os
import signal
from typing import Any

from scratchbus import Bus
from scratchbus.commands import dependents
from scratchbus.eventlog.append import append


def refute_and_die(url: str, bus: str, id: str, batches: int) -> None:
    """Refute, and die after this many batches for dependents on other pages."""
    done = 0

    def mortal(*given: Any, **more: Any) -> Any:
        nonlocal done
        if done == batches:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return append(*given, **more)

    dependents.append = mortal  # type: ignore[attr-defined]  # of this process only
    with Bus.connect(url, bus=bus, source="refuter") as connected:
        connected.page().refute(id, reason="misread")


def add_dependents(url: str, bus: str, page: str, id: str, barrier: Any, added: Any) -> None:
    """Add dependents of an observation, and dependents of those, until it is refuted; report the ids."""
    with Bus.connect(url, bus=bus, source="adder", max_observations=100_000) as connected:
        mine, ids = connected.page(page), list[str]()
        barrier.wait()
        while connected.page().get(id).status == "active" and len(ids) < 1_000:
            ids.append(mine.add("observation", "rests on it", evidence=[id]).id)
            ids.append(mine.add("observation", "rests on that", evidence=[ids[-1]]).id)
        added.put((page, ids))
