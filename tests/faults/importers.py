"""Processes that import, and kill themselves at a given step."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from scratchbus import Bus
from scratchbus.engine.steps import Step
from scratchbus.eventlog import staging
from scratchbus.eventlog.staging import Staging


def import_and_die(url: str, bus: str, shards: int, file: Path, step: int, steps: Path) -> None:
    """Import, and die as by `kill -9` right after this step, or before the first one if it is 0.

    A step is a write to the engine. If there are fewer steps, write their names to the file `steps`.
    """
    staging._MAX_COMMANDS = 16  # so that even a small file takes several parts
    taken = list[str]()
    do = Staging._do

    def die_after(self: Staging, operation: str, *keys_or_commands: object, **needed: Any) -> Step[list[Any]]:
        reply = yield from do(self, operation, *keys_or_commands, **needed)
        taken.append(operation)
        if len(taken) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    setattr(Staging, "_do", die_after)  # noqa: B010  # mypy refuses a plain assignment
    with Bus.connect(url, bus=bus, shards=shards, source="importer") as opened, file.open("rb") as lines:
        if step == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        opened.import_events(lines)
    steps.write_text("\n".join(taken))
