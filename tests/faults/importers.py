"""Processes that import, and die at a step of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from scratchbus import Bus
from scratchbus.archive import staging
from scratchbus.archive.staging import Staging
from scratchbus.engine.steps import Step


def import_and_die(url: str, bus: str, shards: int, file: Path, step: int, steps: Path) -> None:
    """Import and die right after this step, as by `kill -9`, or before the first one if it is 0.

    A step is a change of what the engine holds; nothing but reads is between two. Without that many, write their names.
    """
    staging._MAX_COMMANDS = 16  # so that a small file has parts at the beginning, in the middle and at the end
    taken = list[str]()
    do = Staging._do

    def die_after(self: Staging, operation: str, *keys_or_commands: object, **needed: Any) -> Step[list[Any]]:
        reply = yield from do(self, operation, *keys_or_commands, **needed)
        taken.append(operation)
        if len(taken) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    setattr(Staging, "_do", die_after)  # noqa: B010  # what mypy would rather not see, and this process is for
    with Bus.connect(url, bus=bus, shards=shards, source="importer") as opened, file.open("rb") as lines:
        if step == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        opened.import_events(lines)
    steps.write_text("\n".join(taken))
