"""The embedded engine: one private server per directory, shared by all local processes of its user.

The first process that needs it starts it. It outlives that process, listens on a unix socket only, and keeps its data
across any crash. The lock that it holds shows that a server is alive, and its own reply which one it is; a recorded
process id is never trusted.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import hiredis

from scratchbus.engine.embedded import directory as files
from scratchbus.engine.embedded.socket import check_peer, check_socket
from scratchbus.errors import (
    EngineLoading,
    EngineNotStarted,
    EngineReadOnly,
    EngineUnreachable,
    InvalidURL,
    SettingsError,
    shown,
)

_REPLY_TIMEOUT = 5.0  # seconds within which a running server must reply
_FSYNC_CHOICES = ("always", "everysec", "no")


@dataclass(frozen=True)
class EmbeddedEngine:
    """A running server; `appendfsync` says when it syncs its log to disk (``always``, ``everysec`` or ``no``)."""

    directory: Path
    socket: Path
    pid: int
    engine: str
    version: str
    appendfsync: str


class _PingReply(NamedTuple):
    engine: EmbeddedEngine
    loading: bool


def default_directory() -> Path:
    """Return the user's own directory: $SCRATCHBUS_HOME, else one below the platform's directory for user data.

    Raises SettingsError if the user has no home directory.
    """
    home = os.environ.get("SCRATCHBUS_HOME")
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    try:
        if home:
            return Path(home).expanduser()
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support" / "scratchbus"
        return (data if data.is_absolute() else Path.home() / ".local" / "share") / "scratchbus"
    except RuntimeError:
        raise SettingsError("home: this user has no home directory; set SCRATCHBUS_HOME to a whole path") from None


def find_running(directory: Path | str) -> EmbeddedEngine | None:
    """Return the engine that runs on the directory, even while it loads its data; None if there is none.

    Raises EngineUnreachable if there is one that does not answer.
    """
    directory = _absolute(directory)
    with files.explained(directory, EngineUnreachable):
        reply = _ask(directory, time.monotonic() + _REPLY_TIMEOUT)
    return reply.engine if reply else None


def directory_of(url: str | None = None, home: Path | None = None) -> Path | None:
    """Return the directory of the embedded engine that a URL or settings name; None for any other engine.

    Raises InvalidURL for a text that cannot be a path.
    """
    scheme, _, path = (url or "embedded:").partition(":")
    if scheme.lower() != "embedded":
        return None
    directory = Path(path.removeprefix("//") or home or default_directory())
    try:
        if b"\0" in os.fsencode(directory):
            raise ValueError("it contains a null character")
        return directory.expanduser()
    except (RuntimeError, ValueError) as problem:  # of an unknown user; UnicodeError is a ValueError
        raise InvalidURL(f"url: {shown(str(directory))} is not a directory's path: {problem}") from None


def ensure_running(
    directory: Path, *, appendfsync: str = "everysec", timeout: float = 20.0, unless_stopped: bool = False
) -> EmbeddedEngine:
    """Return the engine that runs on the directory; start it if there is none. Processes may call this concurrently.

    An engine that is already running keeps its ``appendfsync``, which the result contains. With ``unless_stopped`` it
    is started only after a crash, not if `stop` ended it or its directory was removed. Raises EngineMissing,
    ForeignData, EngineNotStarted, EngineLoading or EngineUnreachable; a server that is merely slow is left running.
    """
    if appendfsync not in _FSYNC_CHOICES:
        raise SettingsError(f"appendfsync: {appendfsync!r} is not known; use one of: {', '.join(_FSYNC_CHOICES)}")
    directory = _absolute(directory)
    deadline = time.monotonic() + timeout
    with files.explained(directory, EngineNotStarted):
        engine = _ready(directory, deadline)
        if engine is not None:
            return engine
        if not unless_stopped:
            files.make_private(directory)
        elif not directory.exists():
            raise _stopped(directory)
        with files.start_lock(directory, deadline):
            if not unless_stopped:
                (directory / files.STOPPED).unlink(missing_ok=True)
            elif (directory / files.STOPPED).exists():
                raise _stopped(directory)
            return _start(directory, appendfsync, deadline)


def stop(directory: Path | str, timeout: float = 10.0) -> bool:
    """Stop the directory's engine and wait until its process is gone; return False if none ran. No data is lost.

    It stays down until it is started explicitly; its current clients do not restart it. Raises EngineUnreachable if
    it is still running after `timeout` seconds, and EngineReadOnly, without stopping it, if its disk lacks the last
    writes because it is full.
    """
    directory = _absolute(directory)
    deadline = time.monotonic() + timeout
    with files.explained(directory, EngineUnreachable):
        if not (directory / files.ENGINE_LOCK).exists():
            return False
        check_socket(files.socket_of(directory), directory)
        with files.start_lock(directory, deadline):
            _check_disk(directory, deadline)
            (directory / files.STOPPED).touch(mode=0o600)
            return _end(directory, deadline)


# -- starting and ending ------------------------------------------------------------------------------------------


def _start(directory: Path, appendfsync: str, deadline: float) -> EmbeddedEngine:
    """Start the server and wait until it answers, under the start lock.

    If another process left a server that is still starting, wait for that one; if one is shutting down, wait until it
    is gone.
    """
    from scratchbus.engine.embedded import (
        process as engine_launch,  # late: finding a running engine does not need its imports
    )

    launch: engine_launch.Launch | None = None
    for _ in files.ticks(deadline):
        engine = _ready(directory, deadline)
        if engine is not None:
            _record(engine)
            return engine
        lock = files.try_lock(directory / files.ENGINE_LOCK)
        if lock is None:
            continue
        try:
            if launch is not None:
                raise engine_launch.failure(launch)
            launch = engine_launch.launch(directory, appendfsync, lock, deadline)
        finally:
            os.close(lock)
    raise _unresponsive(directory)


def _record(engine: EmbeddedEngine) -> None:
    """Record the running engine, unless it is recorded already."""
    before = files.read_record(engine.directory)
    if before is not None and before.pid == engine.pid:
        return
    socket_path = files.SOCKET if engine.socket.parent == engine.directory else str(engine.socket)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    files.write_record(engine.directory, files.Record(engine.engine, engine.version, socket_path, engine.pid, now))


def _check_disk(directory: Path, deadline: float) -> None:
    """Raise EngineReadOnly if the server cannot write to its log; if it ended, its last writes would be lost."""
    replies = _converse(directory, files.socket_of(directory), b"INFO persistence\r\n", 1, deadline)
    if replies and isinstance(replies[0], bytes) and b"aof_last_write_status:err" in replies[0]:
        raise EngineReadOnly(
            f"{_holder(directory)} cannot write to its disk, and was not stopped, since that would lose its last"
            f" writes; free disk space and try again, or kill it (its log: {directory / files.LOG})"
        )


def _end(directory: Path, deadline: float) -> bool:
    """Send SHUTDOWN until the server's lock is free, under the start lock; return whether one ran."""
    ran = False
    for _ in files.ticks(deadline):
        lock = files.try_lock(directory / files.ENGINE_LOCK)
        if lock is not None:
            os.close(lock)
            return ran
        ran = True
        _converse(directory, files.socket_of(directory), b"SHUTDOWN\r\n", 1, deadline)
    raise EngineUnreachable(f"{_holder(directory)} did not stop; kill it (its log: {directory / files.LOG})")


# -- talking to the server -----------------------------------------------------------------------------------------


def _absolute(directory: Path | str) -> Path:
    """Return the directory's canonical path, the same in all processes."""
    return Path(os.path.realpath(Path(directory).expanduser()))


def _ready(directory: Path, deadline: float) -> EmbeddedEngine | None:
    """Return the directory's engine once it has loaded its data; None if none is listening."""
    for _ in files.ticks(deadline):
        reply = _ask(directory, deadline)
        if reply is None or not reply.loading:
            return reply.engine if reply else None
    raise EngineLoading(f"the engine in {directory} is still loading its data; try again")


def _ask(directory: Path, deadline: float) -> _PingReply | None:
    """Ask the directory's server what it is; return None if none is listening."""
    socket_path = files.socket_of(directory)
    for _ in files.ticks(deadline):
        replies = _converse(
            directory, socket_path, b"INFO server persistence\r\nCONFIG GET appendfsync\r\n", 2, deadline
        )
        match replies:
            case None:
                return None
            case [bytes(info), [_, bytes(appendfsync)]]:
                fields = dict(line.partition(":")[::2] for line in info.decode().splitlines())
                engine = "valkey" if "valkey_version" in fields else "redis"
                pid, version = int(fields["process_id"]), fields[f"{engine}_version"]
                running = EmbeddedEngine(directory, socket_path, pid, engine, version, appendfsync.decode())
                return _PingReply(running, fields["loading"] == "1")
        # Otherwise it is alive but too slow, or it replied BUSY because a script has been running for seconds.
    raise _unresponsive(directory)


def _converse(directory: Path, socket_path: Path, commands: bytes, count: int, deadline: float) -> list[object] | None:
    """Send commands and return their replies; fewer if time runs out, None if no server is listening.

    Raises EngineUnreachable, and sends nothing, if another user's process is listening. Uses a bare socket, because
    importing the client library takes a hundred times as long.
    """
    if not check_socket(socket_path, directory):
        return None
    replies: list[object] = []
    reader = hiredis.Reader()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            connection.connect(str(socket_path))
            check_peer(connection, socket_path)
            connection.sendall(commands)
            while len(replies) < count:
                received = connection.recv(65536)
                if not received:
                    return None
                reader.feed(received)
                while (reply := reader.gets()) is not False:
                    replies.append(reply)
        except (FileNotFoundError, NotADirectoryError, ConnectionError):
            return None
        except (TimeoutError, BlockingIOError):  # BlockingIOError: the backlog is full
            pass
    return replies


def _stopped(directory: Path) -> EngineUnreachable:
    return EngineUnreachable(
        f"the embedded engine in {directory} was stopped; start it with `scratchbus up` or by connecting again"
    )


def _unresponsive(directory: Path) -> EngineUnreachable:
    return EngineUnreachable(f"{_holder(directory)} does not answer; stop it and try again")


def _holder(directory: Path) -> str:
    """Name the process that serves the directory, for a person who has to end it."""
    record = files.read_record(directory)
    process = f"process {record.pid}" if record and record.pid else "the process"
    return f"{process} that serves {directory}"
