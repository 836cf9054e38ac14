"""A text file that others edit too: it is replaced only if it has not changed since it was read."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from scratchbus.daemon import replace_unchanged_file
from scratchbus.errors import Conflict, InvalidInput

T = TypeVar("T")

MAX_BYTES: Final = 1024 * 1024
"""The most bytes of a file."""

_QUIET = 0.1  # seconds
_MAX_WAIT: Final = 2.0
_BOM: Final = b"\xef\xbb\xbf"


def settled(path: Path, read: Callable[[], T]) -> T:
    """Return the result of `read` once the file has been unchanged for a moment, at most 2 seconds later.

    Some editors truncate a file before they write it.
    """
    deadline = time.monotonic() + _MAX_WAIT
    while True:
        found = read()
        try:
            age = time.time() - path.stat().st_mtime
        except OSError:
            return found
        if not 0 <= age < _QUIET or time.monotonic() > deadline:
            return found
        time.sleep(_QUIET - age)


class FileChanged(Conflict):
    """Someone else changed a file between its reading and its writing."""


class FileContent(NamedTuple):
    """The content of a file when it was read; `data` is None if it does not exist."""

    text: str
    data: bytes | None

    @property
    def is_blank(self) -> bool:
        """Whether it is empty, since it was deleted, or an editor is about to write it."""
        return not self.text.strip()


class SharedFile:
    """A file of a directory, by its name."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / name

    def read(self) -> FileContent:
        """Return its content. Raises InvalidInput for anything but UTF-8 text of at most 1 MiB, and OSError."""
        data = self._bytes()
        if data is None:
            return FileContent("", None)
        if len(data) > MAX_BYTES:
            raise InvalidInput(f"{self.path} is larger than {MAX_BYTES:,} bytes; move a part of it to another file")
        if b"\0" in data:
            raise InvalidInput(f"{self.path} is binary; replace it with a text, or move it away")
        try:
            text = data.removeprefix(_BOM).decode()
        except UnicodeDecodeError as problem:
            location = f"byte {problem.object[problem.start]:#04x} at {problem.start}"
            raise InvalidInput(f"{self.path} is not UTF-8 text ({location}); save it as UTF-8") from None
        return FileContent(text, data)

    def replace(self, text: str, seen: FileContent) -> None:
        """Write a text in one step, with the permissions of the file. Raises OSError.

        Raises FileChanged, without writing, if its content differs from `seen`. If someone writes into the file just as
        it is replaced, it is put back.
        """
        data = (_BOM if (seen.data or b"").startswith(_BOM) else b"") + text.encode()
        if not replace_unchanged_file(self.path, data, seen.data, lambda: self._bytes() == seen.data):
            raise FileChanged(f"{self.path} was changed meanwhile; try again")

    def _bytes(self) -> bytes | None:
        """Return its bytes, at most one more than allowed; None if it does not exist. Raises InvalidInput."""
        try:
            if self.path.is_symlink():
                raise InvalidInput(f"{self.path} is a symbolic link; replace it with a regular file")
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise InvalidInput(f"{self.path} is not a file; move it away")
        with os.fdopen(file, "rb") as stream:
            return stream.read(MAX_BYTES + 1)
