"""The last common state of a workspace and a session, in a file of the data directory.

It is written after both sides. If a process is killed before that, the next sync finds both sides equal and merges the
changes since the previous state.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from scratchbus.workspace.checklist import Entry


@dataclass
class MergeBase:
    """The common state: items by id in the order of the file, the text of the notes, and the position in the log."""

    items: dict[str, Entry] = field(default_factory=dict)
    notes: str = ""
    position: str = ""


class SyncState:
    """The state of one workspace with one session of one bus."""

    def __init__(self, home: Path, *names: str) -> None:
        self._path = home / "workspace" / f"{sha256(json.dumps(names).encode()).hexdigest()[:32]}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from syncing the same workspace while the `with` lasts. Raises OSError."""
        for directory in (self._path.parent.parent, self._path.parent):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def read(self) -> MergeBase:
        """Return the state, an empty one if none can be read: then nothing counts as removed."""
        try:
            stored: dict[str, Any] = json.loads(self._path.read_bytes())
            items = {str(id): Entry(str(text), str(status)) for id, (text, status) in stored["items"].items()}
            return MergeBase(items, str(stored["notes"]), str(stored["position"]))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return MergeBase()

    def write(self, synced: MergeBase) -> None:
        """Store a state atomically. Raises OSError."""
        temporary = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(asdict(synced), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
