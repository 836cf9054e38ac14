"""The store of an archive: a directory, or a cloud object store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Protocol
from urllib.parse import unquote, urlsplit

from scratchbus.errors import ArchiveUnavailable, InvalidURL, SettingsError, shown

OBJECTS = ("s3", "gs", "az")
"""The schemes of the object stores."""

_FORMS = "a directory, file:///directory, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
_LOST = "lost+found"  # of the root of a file system, and not readable; no bus can have this name
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class Store(Protocol):
    """Files by name. Failures raise ArchiveUnavailable; `where` is the location, without any password."""

    where: str

    def list(self, prefix: str = "") -> list[str]:
        """Return the names of all files with this prefix, sorted."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is none."""
        ...

    def get_part(self, name: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes of a file from `start` on, fewer if it ends before; None if there is no file."""
        ...

    def put_new(self, name: str, content: bytes) -> bool:
        """Write a file atomically and durably; return False, and write nothing, if it exists."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Write a file durably and atomically, in place of the existing one."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        ...


NOT_SET = "archive_url is not set; set it, or SCRATCHBUS_ARCHIVE_URL, to a directory, or to s3://, gs:// or az://"
"""The error message for a bus without an archive."""


def open_store(url: str | None) -> Store:
    """Return the store at a URL or path, without reading it. Raises InvalidURL, or SettingsError without a URL."""
    if not url:
        raise SettingsError(NOT_SET)
    match = _SCHEME.match(url)
    if match is None:
        try:
            return DirectoryStore(_path(url).expanduser())
        except RuntimeError:
            raise InvalidURL(f"archive_url: the home directory in {shown(url)} is unknown; write {_FORMS}") from None
    scheme = match[1].lower()
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may have a key
        raise InvalidURL(f"archive_url: the host of this {scheme}:// URL is not valid; write {_FORMS}") from None
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            host = parts.netloc.rpartition("@")[2]
            raise InvalidURL(
                f"archive_url: {shown(f'file://{host}{parts.path}')} names a host; write file:///directory"
            )
        return DirectoryStore(_path(unquote(parts.path)))
    if scheme in OBJECTS:
        from scratchbus.archive.object_store import ObjectStore  # late: an optional dependency, slow to import

        return ObjectStore.at(url)
    raise InvalidURL(f"archive_url: {scheme}:// is not an archive URL; write {_FORMS}")


def _path(text: str) -> Path:
    """Return a path. Raises InvalidURL for a name that no directory can have."""
    try:
        is_possible = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_possible = False
    if not is_possible:
        raise InvalidURL(f"archive_url: no directory can have the name {shown(text)}; write {_FORMS}")
    return Path(text)


class DirectoryStore:
    """Files in a directory, which is created on demand; a write returns once the file is on disk.

    New files and directories are private to their owner (0600, 0700); an existing directory keeps its mode. A directory
    that had files, and then has none or does not exist, is not mounted any more: reading it raises ArchiveUnavailable.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._had_files = False
        self.where = str(directory)

    def list(self, prefix: str = "") -> list[str]:
        """Return the names of all files with this prefix, sorted."""
        with self._explained(prefix):
            folder = self._directory / prefix.rpartition("/")[0]
            files = _walk(folder) if folder.is_dir() else iter(())
            names = (file.relative_to(self._directory).as_posix() for file in files)
            found = sorted(name for name in names if name.startswith(prefix))
            self._check_mounted(is_found=bool(found))
            return found

    def get(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is none."""
        with self._explained(name):
            try:
                content = (self._directory / name).read_bytes()
            except FileNotFoundError:
                content = None
            self._check_mounted(is_found=content is not None)
            return content

    def get_part(self, name: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes of a file from `start` on, fewer if it ends before; None if there is no file."""
        with self._explained(name):
            try:
                with (self._directory / name).open("rb") as file:
                    file.seek(start)
                    return file.read(length)
            except FileNotFoundError:
                self._check_mounted(is_found=False)
                return None

    def put_new(self, name: str, content: bytes) -> bool:
        """Write a file atomically and durably; return False, and write nothing, if it exists."""
        with self._explained(name), self._written(name, content) as temporary:
            try:
                os.link(temporary, self._directory / name)
            except FileExistsError:
                return False
            return True

    def replace(self, name: str, content: bytes) -> None:
        """Write a file durably and atomically, in place of the existing one."""
        with self._explained(name), self._written(name, content) as temporary:
            temporary.replace(self._directory / name)

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        with self._explained(name):
            (self._directory / name).unlink(missing_ok=True)

    def _check_mounted(self, *, is_found: bool) -> None:
        """Remember that a file was found; raise ArchiveUnavailable if none was, and all that were there are gone."""
        if is_found:
            self._had_files = True
        elif self._had_files and not (self._directory.is_dir() and any(self._directory.iterdir())):
            raise ArchiveUnavailable(
                f"archive {self._directory}: it had files, and has none now; mount it again, or restore it"
            )

    @contextmanager
    def _written(self, name: str, content: bytes) -> Iterator[Path]:
        """Write a temporary file, yield it to be renamed, and sync the directory."""
        self._check_mounted(is_found=False)
        file = self._directory / name
        _make(file.parent)
        temporary = file.with_name(f".{file.name}.{token_hex(4)}.tmp")
        try:
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            yield temporary
            _sync(file.parent)
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise ArchiveUnavailable(
                f"archive {self._directory / name}: {problem.strerror or problem}; check the disk and its permissions,"
                " then try again"
            ) from None


def _walk(folder: Path) -> Iterator[Path]:
    for entry in os.scandir(folder):
        if entry.name == _LOST:
            continue
        if entry.is_dir():
            yield from _walk(Path(entry.path))
        else:
            yield Path(entry.path)


def _make(folder: Path) -> None:
    """Create a directory and its parents durably."""
    if not folder.exists():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
