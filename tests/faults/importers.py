"""Processes that import, and die at a step of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from scratchbus import Bus
from scratchbus.archive import staging
from scratchbus.archive.importing import import_events


def import_and_die(url: str, bus: str, shards: int, file: Path, step: int, steps: Path) -> None:
    """Import until this step and die at it, as by `kill -9`; each call to the engine has one before and after.

    Without that many steps, write how many there were.
    """
    staging._MOST_COMMANDS = 4  # so that a small file has many steps
    taken = 0

    def take() -> None:
        nonlocal taken
        taken += 1
        if taken == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with Bus.connect(url, bus=bus, shards=shards, source="importer") as opened, file.open("rb") as lines:
        conversation, reply = import_events(opened.core, lines), None
        while True:
            try:
                request = conversation.send(reply)
            except StopIteration:
                break
            take()
            reply = opened.converse(_ask(request))
            take()
    steps.write_text(f"{taken}")


def _ask(request):
    return (yield request)
