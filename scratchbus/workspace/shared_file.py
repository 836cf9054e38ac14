"""A text file that others edit too: it is replaced only if it has not changed since it was read."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from scratchbus.errors import Conflict, InvalidInput

T = TypeVar("T")

MAX_BYTES: Final = 1024 * 1024
"""The most bytes of a file."""

_QUIET = 0.1  # seconds
_MAX_WAIT: Final = 2.0
_MAX_AGE: Final = 3600  # seconds; a temporary file is in use for a moment
_BOM: Final = b"\xef\xbb\xbf"
_NEW_MODE: Final = 0o666


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


def _is_unchanged(former: Path, data: bytes | None) -> bool:
    """Return whether a file still has these bytes, as far as one can tell: there may be no such name."""
    return not former.exists() or former.read_bytes() == data


def _create(path: Path, temporary: Path) -> None:
    """Give a new file its name. Raises FileChanged if another file has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise FileChanged(f"{path} was changed meanwhile; try again") from None
    except OSError:  # not every file system has hard links
        temporary.replace(path)


class FileChanged(Conflict):
    """Someone else changed a file between its reading and its writing."""


class FileContent(NamedTuple):
    """The content of a file when it was read; `data` is None if it does not exist."""

    text: str
    data: bytes | None
    mode: int = _NEW_MODE

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
        data, mode = self._bytes()
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
        return FileContent(text, data, mode)

    def replace(self, text: str, seen: FileContent) -> None:
        """Write a text in one step, with the permissions of the file. Raises OSError.

        Raises FileChanged, without writing, if its content differs from `seen`. If someone writes into the file just as
        it is replaced, it is put back.
        """
        data = (_BOM if (seen.data or b"").startswith(_BOM) else b"") + text.encode()
        self._delete_leftovers()
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}.part")
        former = temporary.with_suffix(".old")  # another name of the file that is replaced
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, seen.mode)
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
                stream.flush()
                if seen.data is not None:
                    os.fchmod(stream.fileno(), seen.mode)
                os.fsync(stream.fileno())
            if seen.data is not None:
                with suppress(OSError):  # not every file system has hard links
                    os.link(self.path, former, follow_symlinks=False)
            if self._bytes()[0] != seen.data or not _is_unchanged(former, seen.data):
                raise FileChanged(f"{self.path} was changed meanwhile; try again")
            if seen.data is None:
                _create(self.path, temporary)
            else:
                temporary.replace(self.path)
            if not _is_unchanged(former, seen.data):
                former.replace(self.path)
                raise FileChanged(f"{self.path} was changed meanwhile; try again")
        finally:
            for each in (temporary, former):
                with suppress(OSError):
                    each.unlink()

    def _delete_leftovers(self) -> None:
        """Delete the temporary files of writers that were killed."""
        for each in self.path.parent.glob(f".{escape(self.path.name)}.{'[0-9a-f]' * 12}.*"):
            with suppress(OSError):
                status = each.stat()
                named = {".part": status.st_mtime, ".old": status.st_ctime}.get(each.suffix)  # a link keeps its mtime
                if named is not None and time.time() - named > _MAX_AGE:
                    each.unlink()

    def _bytes(self) -> tuple[bytes | None, int]:
        """Return its bytes, at most one more than allowed, and its permissions. Raises InvalidInput."""
        try:
            if self.path.is_symlink():
                raise InvalidInput(f"{self.path} is a symbolic link; replace it with a regular file")
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None, _NEW_MODE
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            os.close(file)
            raise InvalidInput(f"{self.path} is not a file; move it away")
        with os.fdopen(file, "rb") as stream:
            return stream.read(MAX_BYTES + 1), stat.S_IMODE(status.st_mode)
