"""The state a log watcher stores between runs: its position in the log, and its last published observation."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scratchbus.errors import InvalidInput, SettingsError

from .journal import JournalPosition
from .log_file import FilePosition

_ID = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")


@dataclass(frozen=True)
class Bookmark:
    """The position after everything that was published, and the id of the last observation that was."""

    position: FilePosition | JournalPosition | None = None
    last_id: str | None = None


class BookmarkFile:
    """Stores a bookmark in a small JSON file. It is replaced by renaming, so it is always whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Bookmark:
        """Return the stored bookmark, or an empty one if the file is missing or unreadable.

        Losing a bookmark is safe: lines that are read again are recognised by their event ids.
        """
        try:
            stored = json.loads(self.path.read_bytes())
            kind = JournalPosition if "cursor" in stored["place"] else FilePosition
            bookmark = Bookmark(kind(**stored["place"]), stored["last_id"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return Bookmark()
        return bookmark if _is_readable(bookmark.position, bookmark.last_id) else Bookmark()

    def save(self, bookmark: Bookmark) -> None:
        """Store the bookmark. Raises InvalidInput when the file cannot be written."""
        if bookmark.position is None:
            return
        text = json.dumps({"place": asdict(bookmark.position), "last_id": bookmark.last_id})
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            temporary = Path(name)
            try:
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                temporary.replace(self.path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as problem:
            raise InvalidInput(f"{self.path}: cannot be written: {problem.strerror}; choose another --state") from None


def _is_readable(position: Any, last_id: Any) -> bool:
    """Return whether the fields of a bookmark have their types, as in a file that nobody has edited."""
    if not (last_id is None or (isinstance(last_id, str) and _ID.fullmatch(last_id))):
        return False
    if isinstance(position, JournalPosition):
        return isinstance(position.cursor, str)
    if not isinstance(position, FilePosition) or not isinstance(position.earlier, dict):
        return False
    numbers = [position.inode, position.offset, position.tail, position.unfinished, *position.earlier.values()]
    return (
        all(type(each) is int and 0 <= each < 1 << 63 for each in numbers)
        and position.tail <= position.offset
        and all(isinstance(each, str) for each in (position.identity, position.tail_digest))
        and (position.identity.partition(".")[2] or "0").isdecimal()
    )


def state_directory() -> Path:
    """Return the directory for state that this user's programs keep between runs: $XDG_STATE_HOME/scratchbus.

    Raises SettingsError if the user has no home directory, as in a container with an unknown user.
    """
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "scratchbus"
    except RuntimeError:
        raise SettingsError(
            "this user has no home directory for state; set XDG_STATE_HOME, or name the file by its option"
        ) from None


def default_path(log: str, target: str) -> Path:
    """Return the default path of the bookmark for this log and this bus and page (`Daemon.target`)."""
    key = hashlib.sha256(f"{log}\0{target}".encode()).hexdigest()[:16]
    return state_directory() / "logwatch" / f"{key}.json"
