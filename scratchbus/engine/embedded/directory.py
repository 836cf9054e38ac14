"""The files of an embedded engine's directory.

``engine.json``      the engine that wrote the data, and the path of the socket; replaced atomically
``engine.conf``      the server's configuration, rewritten at every start
``engine.log``       the server's log
``engine.sock``      its socket, unless the directory's path is too long for one
``engine.stopped``   exists after a stop on purpose: clients of the server do not restart it then
``engine.lock``      held by the server process itself, so that the kernel tells whether it is alive
``start.lock``       held by the process that is starting or stopping the server
``appendonlydir/``   the data
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from scratchbus.engine.embedded.socket import shared_directory_problem
from scratchbus.errors import EngineError, EngineNotStarted, EngineUnreachable, ForeignData

RECORD = "engine.json"
CONFIG = "engine.conf"
LOG = "engine.log"
SOCKET = "engine.sock"
STOPPED = "engine.stopped"
ENGINE_LOCK = "engine.lock"
START_LOCK = "start.lock"

_SOCKET_BYTES = 100  # sockaddr_un holds 107 bytes on Linux and 103 on macOS
_TICK = 0.005
_VERSION = re.compile(r"\d+(\.\d+)*")
_WRITER = re.compile(rb"(valkey|redis)-ver.(\d+\.\d+\.\d+)", re.DOTALL)  # a string after its length byte


class Origin(NamedTuple):
    """The engine family and version that wrote some data."""

    engine: str
    version: str

    @property
    def order(self) -> tuple[int, ...]:
        """The version as numbers that compare."""
        return tuple(int(part) for part in self.version.split("."))

    def __str__(self) -> str:
        return f"{self.engine} {self.version}"


@dataclass(frozen=True)
class Record:
    """The record of a directory's engine.

    ``socket`` is relative to the directory, or absolute if it is elsewhere. ``pid`` and ``started_at`` are for people
    to read; the lock and the socket tell whether a server is running.
    """

    engine: str
    version: str
    socket: str
    pid: int | None = None
    started_at: str | None = None


def read_record(directory: Path) -> Record | None:
    """Return the directory's record; None if there is no valid one."""
    try:
        fields = json.loads((directory / RECORD).read_bytes())
        record = Record(**fields)
        os.fsencode(record.socket)
        return record if _VERSION.fullmatch(record.version) else None
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):  # the last two: not JSON, not these fields
        return None


def write_record(directory: Path, record: Record | None) -> None:
    """Replace the directory's record atomically, or remove it."""
    if record is None:
        (directory / RECORD).unlink(missing_ok=True)
        return
    temporary = directory / f"{RECORD}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(asdict(record), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / RECORD)


def data_origin(directory: Path) -> Origin | None:
    """Return which engine wrote the data in the directory; None if there is no data.

    Without a record, the header of the data says so. Raises ForeignData if that does not either.
    """
    data = [found for pattern in ("appendonlydir/*", "*.aof", "*.rdb") for found in directory.glob(pattern)]
    if not data:
        return None
    record = read_record(directory)
    if record is not None:
        return Origin(record.engine, record.version)
    for base in directory.glob("appendonlydir/*.base.rdb"):
        with open(base, "rb") as file:
            writer = _WRITER.search(file.read(64))
        if writer is not None:
            return Origin(writer[1].decode(), writer[2].decode())
    raise ForeignData(f"{data[0]} was not written by scratchbus; use an empty directory")


def make_private(directory: Path) -> None:
    """Create the directory with access for this user only, or restrict an empty one. Raises EngineNotStarted.

    The mode of a directory with files is left as it is, since it may be a home directory or a checkout; one that
    others may write to is refused. The socket and the data in it are private to this user in any case.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    if status.st_uid != os.geteuid():
        raise EngineNotStarted(f"{directory} belongs to another user; use a directory of your own")
    if not any(directory.iterdir()):
        directory.chmod(0o700)
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EngineNotStarted(f"others may write to {directory}; chmod 700 it, or use an empty directory")


def planned_socket(directory: Path) -> str:
    """Return where a server started now would put its socket: a name in the directory, or an absolute path.

    An absolute path is in a directory of this user below the one for temporary files. Like the server, that outlives
    the login session; the session's runtime directory does not.
    """
    if len(os.fsencode(directory / SOCKET)) <= _SOCKET_BYTES:
        return SOCKET
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    import tempfile  # rarely needed, and slow to import

    relative = f"scratchbus-{os.geteuid()}/{name}.sock"
    short = os.path.join(tempfile.gettempdir(), relative)
    # S108: the directory is checked to be this user's own before a socket goes there.
    return short if len(os.fsencode(short)) <= _SOCKET_BYTES else f"/tmp/{relative}"  # noqa: S108


def socket_of(directory: Path) -> Path:
    """Return where the directory's server listens, if it is running.

    This is the recorded path, because TMPDIR may differ between processes, unless the record was copied with another
    directory, or the path now belongs to another user.
    """
    planned = planned_socket(directory)
    record = read_record(directory)
    if record is None or os.path.basename(record.socket) != os.path.basename(planned):
        return directory / planned
    recorded = directory / record.socket
    try:
        is_lost = recorded.parent != directory and shared_directory_problem(recorded.parent) is not None
    except OSError:
        is_lost = False  # the path does not exist
    return directory / planned if is_lost else recorded


def secure_socket_directory(socket: Path, directory: Path) -> None:
    """Make sure that only this user can access a socket outside the directory. Raises EngineNotStarted."""
    parent = socket.parent
    if parent == directory:
        return
    parent.mkdir(mode=0o700, exist_ok=True)
    problem = shared_directory_problem(parent)
    if problem is not None:
        raise EngineNotStarted(problem)


def ticks(deadline: float) -> Iterator[None]:
    """Yield now, then every few milliseconds until the deadline (of ``time.monotonic``) has passed."""
    yield
    while time.monotonic() < deadline:
        time.sleep(_TICK)
        yield


def try_lock(path: Path) -> int | None:
    """Return a file descriptor that holds the lock, or None if another process or thread holds it.

    The lock is released when all copies of the descriptor are closed, by their processes or by the end of these.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


@contextmanager
def start_lock(directory: Path, deadline: float) -> Iterator[None]:
    """Hold the lock for starting and stopping the directory's server. Raises EngineUnreachable at the deadline."""
    for _ in ticks(deadline):
        descriptor = try_lock(directory / START_LOCK)
        if descriptor is not None:
            break
    else:
        raise EngineUnreachable(f"{directory}: another process is still starting or stopping the engine; try again")
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # after a mere close, a child forked meanwhile would still hold it
        os.close(descriptor)


@contextmanager
def explained(directory: Path, error_class: type[EngineError]) -> Iterator[None]:
    """Turn errors of the operating system into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise error_class(
            f"{error.filename or directory}: {error.strerror or error};"
            " fix that, or choose another directory with SCRATCHBUS_HOME or embedded:DIRECTORY"
        ) from error
