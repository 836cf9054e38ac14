"""The conversations whose agent was asked at its end, as files in the data directory: none is asked twice."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import scratchbus

if TYPE_CHECKING:
    from scratchbus.settings import Settings

_KEPT: Final = 30 * 24 * 3600  # seconds
_OPEN, _CLOSED = b"asked\n", b"answered\n"


class Marks:
    """A file for each conversation that was asked; those older than a month are deleted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def of(cls, settings: Settings) -> Marks:
        """Return the marks in the data directory, also where the engine is a server."""
        home = scratchbus.embedded_directory(None, settings.home)
        assert home is not None  # without a URL there is one  # noqa: S101
        return cls(home / "hooks")

    def add(self, conversation: str) -> bool:
        """Mark a conversation as asked; return False if it already was. Raises OSError."""
        for directory in (self._directory.parent, self._directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            file = os.open(self._path(conversation), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(file, "wb") as stream:
            stream.write(_OPEN)
        self._forget_old()
        return True

    def is_open(self, conversation: str) -> bool:
        """Return whether a conversation was asked and has not answered."""
        try:
            return self._path(conversation).read_bytes() == _OPEN
        except OSError:
            return False

    def close(self, conversation: str) -> None:
        """Mark a conversation as answered. Raises OSError."""
        self._path(conversation).write_bytes(_CLOSED)

    def event_id(self, conversation: str) -> str:
        """Return the event id of the answer, so that a hook that runs twice writes it once."""
        return f"stop-{_digest(conversation)}"

    def _path(self, conversation: str) -> Path:
        return self._directory / f"{_digest(conversation)}.stop"

    def _forget_old(self) -> None:
        for path in self._directory.glob("*.stop"):
            try:
                if path.stat().st_mtime < time.time() - _KEPT:
                    path.unlink()
            except FileNotFoundError:
                pass  # another hook was faster


def _digest(conversation: str) -> str:
    return sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()[:32]
