"""What a log watcher remembers between runs: how far it read, and the last thing it published."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from scratchbus.errors import InvalidInput
from scratchbus.roles.log_file import Place


@dataclass(frozen=True)
class Memory:
    """The place behind everything that was published, and the id of the observation that was published last."""

    place: Place | None = None
    last_id: str | None = None


class MemoryFile:
    """Keeps a memory in a small JSON file, which is always whole: it is written beside and then renamed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Memory:
        """Return what was remembered; nothing where there is no file or it cannot be read.

        Forgetting is safe: what is read again is recognised by its event ids.
        """
        try:
            kept = json.loads(self.path.read_bytes())
            return Memory(Place(**kept["place"]), kept["last_id"])
        except (OSError, ValueError, TypeError, KeyError):
            return Memory()

    def save(self, memory: Memory) -> None:
        """Remember. Raises InvalidInput when the file cannot be written."""
        if memory.place is None:
            return
        text = json.dumps({"place": asdict(memory.place), "last_id": memory.last_id})
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            with contextlib.ExitStack() as undo:
                undo.callback(os.unlink, temporary)
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(temporary, self.path)
                undo.pop_all()
        except OSError as problem:
            raise InvalidInput(f"{self.path}: cannot be written: {problem.strerror}; choose another --state") from None


def state_directory() -> Path:
    """Return the directory for what programs of this user keep between runs: $XDG_STATE_HOME/scratchbus."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "scratchbus"


def default_path(log: Path, target: str) -> Path:
    """Return where a watcher of this log, which publishes to this target, keeps its memory."""
    key = hashlib.sha256(f"{log.absolute()}\0{target}".encode()).hexdigest()[:16]
    return state_directory() / "logwatch" / f"{key}.json"
