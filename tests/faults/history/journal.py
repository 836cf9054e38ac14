"""The records of the processes of a round: each process writes its own file of JSON lines."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple


class Record(NamedTuple):
    """One line: the process, the kind, the time (`t`: monotonic seconds, shared by all; `ms`: wall clock), the data."""

    who: str
    what: str
    t: float
    ms: float
    told: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.who} at {self.t:.3f}: {self.what} {json.dumps(self.told)}"


class Journal:
    """An append-only file. Each line is written at once, so it survives `kill -9`."""

    def __init__(self, path: Path, maximum: int | None = None) -> None:
        """Open it. It is truncated whenever it exceeds `maximum` bytes, so that only the last records remain."""
        self._max_bytes, self._size = maximum, 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, **told: Any) -> None:
        """Add a line; thread-safe."""
        line = json.dumps([what, time.monotonic(), time.time() * 1000, told], separators=(",", ":"))
        self._size += os.write(self._file, f"{line}\n".encode())
        if self._max_bytes is not None and self._size > self._max_bytes:
            os.ftruncate(self._file, 0)
            self._size = 0


def read_journals(directory: Path) -> list[Record]:
    """Return the records of all journals in a directory, in order of time."""
    records = [
        Record(path.stem, *json.loads(line))
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_text().splitlines()
        if line.endswith("]")  # otherwise the process was killed while writing it
    ]
    return sorted(records, key=lambda record: record.t)
