"""What the processes of a round were told: each has a file of its own, with one JSON document a line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple


class Record(NamedTuple):
    """One line: who says what, when (`t`: monotonic seconds, the same for all processes; `ms`: wall clock)."""

    who: str
    what: str
    t: float
    ms: float
    told: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.who} at {self.t:.3f}: {self.what} {json.dumps(self.told)}"


class Journal:
    """A file to which lines are only ever added. Each is handed to the system at once, and so survives `kill -9`."""

    def __init__(self, path: Path, maximum: int | None = None) -> None:
        """Open it. One that has more bytes than `maximum` begins anew, and keeps only what was noted last."""
        self._max_bytes, self._size = maximum, 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, **told: Any) -> None:
        """Add a line; any thread may."""
        line = json.dumps([what, time.monotonic(), time.time() * 1000, told], separators=(",", ":"))
        self._size += os.write(self._file, f"{line}\n".encode())
        if self._max_bytes is not None and self._size > self._max_bytes:
            os.ftruncate(self._file, 0)
            self._size = 0


def read_journals(directory: Path) -> list[Record]:
    """Return the lines of all journals of a directory, in the order of time."""
    records = [
        Record(path.stem, *json.loads(line))
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_text().splitlines()
        if line.endswith("]")  # else the process was killed in the middle of it
    ]
    return sorted(records, key=lambda record: record.t)
