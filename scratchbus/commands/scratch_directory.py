"""A private directory that no path leads out of.

Each directory on a path is opened relative to the one before it (`openat`), never through a symbolic link. So it does
no harm if others rename or replace one between a check and a use. Files are replaced as a whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b, file_digest
from io import BufferedReader
from pathlib import Path
from secrets import token_hex
from typing import IO, NamedTuple
from urllib.parse import quote, unquote

from scratchbus.domain.conversations import check_path
from scratchbus.domain.values import page_of_session
from scratchbus.errors import FilesUnavailable, InvalidField, InvalidInput, InvalidName, NotFound, TooLarge, shown
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW = _OPEN | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_MAX_NAME = 200  # characters of the name of a session's directory
_NOT_A_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)
_NOT_A_FILE = (errno.EISDIR, errno.ENXIO, errno.ENOTEMPTY)

_BRAIN, _FILES, _INCOMING, _LOCK = "brain", "scratch", "incoming", "lock"


class FileOnDisk(NamedTuple):
    """A file on disk."""

    path: str
    size: int
    sha256: str


def name_of(bus: str, session: str) -> str:
    """Return the name of a session's directory: one path component, unique for each session of each bus."""
    name = session if bus == "scratchbus" else f"{bus}+{session}"  # no session has a `+` in its id
    encoded = quote(name, safe="+")
    if encoded.startswith("."):
        encoded = f"%2E{encoded[1:]}"
    if len(encoded) <= _MAX_NAME:
        return encoded
    return f"{encoded[: _MAX_NAME - 42]}~{blake2b(name.encode(), digest_size=20).hexdigest()}"


def session_of(bus: str, name: str) -> str | None:
    """Return the session whose directory has this name; None if it has none, or one that was shortened.

    A directory of another bus has none, and neither has one that someone else made.
    """
    session = unquote(name.rpartition("+")[2])
    try:
        page_of_session(session)
        return session if "~" not in name and name_of(bus, session) == name else None
    except (InvalidName, UnicodeEncodeError):
        return None


def names_in(home: Path) -> list[str]:
    """Return the names of the directories of all sessions. Raises FilesUnavailable."""
    try:
        return sorted(os.listdir(home / _BRAIN))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FilesUnavailable(str(home / _BRAIN), error.strerror or str(error)) from error


class ScratchDirectory:
    """The private files of one session, in `<home>/brain/<name>/scratch`.

    Methods raise InvalidField for a path that leads through a symbolic link or to anything but a regular file,
    NotFound, and FilesUnavailable.
    """

    def __init__(self, home: Path, name: str) -> None:
        self._home = home
        self._name = name

    @property
    def path(self) -> Path:
        """The path of the directory."""
        return self._home / _BRAIN / self._name / _FILES

    def make(self) -> None:
        """Create the directory, accessible to this user only."""
        with self._translated_errors(""), self._open_directory(_FILES, is_new=True):
            pass

    def try_lock(self) -> IO[bytes] | None:
        """Return the lock of the directory, held until it is closed; None if someone else holds it."""
        with self._translated_errors(""), self._open_directory("", is_new=True) as base, ExitStack() as stack:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(_LOCK, flags, 0o600, dir_fd=base)
            lock: IO[bytes] = stack.enter_context(os.fdopen(descriptor, "rb+", buffering=0))
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stack.pop_all()  # the caller closes it
                return lock
        return None

    def put(self, path: str, content: bytes) -> None:
        """Write a whole file, and create the directories above it. The caller must hold the lock.

        A file at this path is replaced only when the new content is on disk.
        """
        check_path(path)
        self.clear_incoming()
        with (
            self._translated_errors(path),
            self._open_directory(_INCOMING, is_new=True) as incoming,
            self._parent(path, is_new=True) as (parent, name),
        ):
            self._check_regular(path, parent, name)
            temporary = token_hex(8)
            try:
                _write(os.open(temporary, _NEW, 0o600, dir_fd=incoming), content)
                os.replace(temporary, name, src_dir_fd=incoming, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=incoming)
                raise
            os.fsync(parent)

    def clear_incoming(self) -> None:
        """Delete what writers left that were killed. The caller must hold the lock."""
        with self._translated_errors(""), self._open_directory(_INCOMING, is_new=True) as incoming:
            for leftover in os.listdir(incoming):
                os.unlink(leftover, dir_fd=incoming)

    def get(self, path: str, limit: int) -> bytes:
        """Return the content of a file. Raises TooLarge if it has more than `limit` bytes."""
        check_path(path)
        with self._translated_errors(path), self._file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise TooLarge("path", size, limit, "bytes", "read the file with a program instead")
            return file.read(size)

    def describe(self, path: str) -> FileOnDisk | None:
        """Return a regular file; None if there is none at this path."""
        with suppress(NotFound, InvalidField), self._translated_errors(path), self._file(path) as file:
            return _described(path, file)
        return None

    def remove(self, path: str) -> bool:
        """Delete a file, and the directories that it leaves empty; return whether it existed."""
        check_path(path)
        names = path.split("/")
        with self._translated_errors(path):
            try:
                with self._parent(path) as (parent, name):
                    os.unlink(name, dir_fd=parent)
            except FileNotFoundError:
                return False
            for depth in range(len(names) - 1, 0, -1):
                with suppress(OSError), self._parent("/".join(names[:depth])) as (parent, name):
                    os.rmdir(name, dir_fd=parent)
        return True

    def scan(self) -> list[FileOnDisk]:
        """Return all regular files, by path, without those whose names are not valid here."""
        with self._translated_errors(""), suppress(FileNotFoundError), self._open_directory(_FILES) as top:
            return sorted(_walk(top, ""))
        return []

    def discard(self, before: float) -> int:
        """Delete files last written before a time (seconds), then empty directories; return the number of files."""
        count = 0
        self.make()  # one that never had files has only a lock
        with self._translated_errors(""), self._open_directory("") as base:
            for _, directories, files, descriptor in os.fwalk(_FILES, topdown=False, dir_fd=base):
                for name in files:
                    if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime < before:
                        os.unlink(name, dir_fd=descriptor)
                        count += 1
                for name in directories:
                    with suppress(OSError):
                        os.rmdir(name, dir_fd=descriptor)
        with suppress(OSError), self._open_directory("") as base:
            os.rmdir(_FILES, dir_fd=base)
            shutil.rmtree(self.path.parent)  # only the lock is left, and files of writers that were killed
        return count

    @contextmanager
    def _open_directory(self, subdirectory: str, *, is_new: bool = False) -> Iterator[int]:
        """Open the directory of the session, or one in it."""
        if is_new:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as stack:
            descriptor = _closing(stack, os.open(self._home, _OPEN))
            for name in filter(None, (_BRAIN, self._name, subdirectory)):
                descriptor = _closing(stack, _open_below(descriptor, name, is_new))
            yield descriptor

    @contextmanager
    def _parent(self, path: str, *, is_new: bool = False) -> Iterator[tuple[int, str]]:
        """Open the directory that a path is in; yield it with the last component of the path."""
        *above, name = path.split("/")
        with self._open_directory(_FILES, is_new=is_new) as descriptor, ExitStack() as stack:
            for each in above:
                descriptor = _closing(stack, _open_below(descriptor, each, is_new))
            yield descriptor, name

    @contextmanager
    def _file(self, path: str) -> Iterator[BufferedReader]:
        with self._parent(path) as (parent, name):
            self._check_regular(path, parent, name)
            file = os.fdopen(os.open(name, _READ, dir_fd=parent), "rb")
        with file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _not_a_file(path)
            yield file

    def _check_regular(self, path: str, parent: int, name: str) -> None:
        """Raise InvalidField if there is anything but a regular file. Safety does not depend on this check."""
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise _not_a_file(path)

    @contextmanager
    def _translated_errors(self, path: str) -> Iterator[None]:
        """Turn an error of the operating system into one that says what to do."""
        try:
            yield
        except OSError as error:
            if path and error.errno in _NOT_A_DIRECTORY:
                problem = f"{shown(path)} leads through a symbolic link or a file; choose another path"
                raise InvalidField("path", problem) from error
            if path and error.errno in _NOT_A_FILE:
                raise _not_a_file(path) from error
            if path and error.errno == errno.ENAMETOOLONG:
                raise InvalidField("path", f"{shown(path)} is too long for the file system; shorten it") from error
            if path and isinstance(error, FileNotFoundError):
                raise NotFound(f"there is no file {shown(path)}; list the files of the session") from error
            raise FilesUnavailable(str(self.path), error.strerror or str(error)) from error


def _not_a_file(path: str) -> InvalidField:
    return InvalidField("path", f"{shown(path)} is a directory, a symbolic link or a device; choose another path")


def _closing(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _open_below(parent: int, name: str, is_new: bool) -> int:
    if is_new:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
    return os.open(name, _BELOW, dir_fd=parent)


def _write(descriptor: int, content: bytes) -> None:
    """Write all of the content to disk, and close the file."""
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        view = memoryview(content)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())


def _walk(directory: int, above: str) -> Iterator[FileOnDisk]:
    """Yield the regular files below an open directory."""
    for name in os.listdir(directory):
        path = above + name
        try:
            check_path(path)
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                with ExitStack() as stack:
                    yield from _walk(_closing(stack, os.open(name, _BELOW, dir_fd=directory)), f"{path}/")
            elif stat.S_ISREG(mode):
                with os.fdopen(os.open(name, _READ, dir_fd=directory), "rb") as file:
                    yield _described(path, file)
        except FileNotFoundError:
            continue
        except InvalidInput as problem:
            logger.warning("a private file is not listed; rename it", reason=str(problem))


def _described(path: str, file: BufferedReader) -> FileOnDisk:
    hashed = file_digest(file, "sha256").hexdigest()
    return FileOnDisk(path, file.tell(), hashed)
