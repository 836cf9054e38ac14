"""Starting the server process of an embedded engine."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from scratchbus.engine.embedded import directory as files
from scratchbus.engine.embedded.binary import EngineBinary, find_binary
from scratchbus.errors import EngineNotStarted

_LOG_PREFIX = re.compile(r"^\d+:\w \d+ \w+ \d+ [\d:.]+ \S ")
_LOG_LINES = 3

# Its paths are relative to the directory, the server's working directory, so they need no quotes and stay short.
_CONFIG = """\
# Written by scratchbus at every start of this engine; changes made here are lost.
port 0
unixsocket {socket}
unixsocketperm 700
daemonize yes
pidfile engine.pid
logfile {log}
proc-title-template "{{title}} {{config-file}}"
appendonly yes
appendfsync {appendfsync}
save ""
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 64mb
maxmemory-policy noeviction
"""


@dataclass(frozen=True)
class Launch:
    """A start in progress, with the data to undo and explain it if it fails."""

    directory: Path
    record_before: files.Record | None
    log_size_before: int


def launch(directory: Path, appendfsync: str, lock: int, deadline: float) -> Launch:
    """Run the server, which takes over the lock. It may still fail after this returns."""
    binary = find_binary(files.data_origin(directory), directory)
    socket_path = files.planned_socket(directory)
    files.secure_socket_directory(directory / socket_path, directory)
    log = directory / files.LOG
    started = Launch(directory, files.read_record(directory), log.stat().st_size if log.exists() else 0)
    text = _CONFIG.format(socket=_quoted(socket_path), log=files.LOG, appendfsync=appendfsync)
    (directory / files.CONFIG).write_text(text, encoding="ascii")
    # Written before the server can touch the data, so that a newer version is remembered whatever happens next.
    files.write_record(directory, files.Record(binary.origin.engine, binary.origin.version, socket_path))
    try:
        _spawn(binary, directory, lock, deadline)
    except subprocess.SubprocessError as error:
        raise failure(started) from error
    except OSError:
        files.write_record(directory, started.record_before)
        raise
    return started


def failure(launch: Launch) -> EngineNotStarted:
    """Undo the record of a server that exited, and return an error with the last lines of its log."""
    files.write_record(launch.directory, launch.record_before)
    log = launch.directory / files.LOG
    with open(log, "rb") as file:
        file.seek(launch.log_size_before)
        lines = file.read().decode(errors="replace").splitlines()
    last_lines = [_LOG_PREFIX.sub("", line).strip() for line in lines if line.strip()][-_LOG_LINES:]
    return EngineNotStarted(f"the engine did not start: {' / '.join(last_lines) or 'no output'} (see {log})")


def _spawn(binary: EngineBinary, directory: Path, lock: int, deadline: float) -> None:
    """Run the server until it has daemonized; its output until then also goes to the log."""
    with open(directory / files.LOG, "ab") as log:
        subprocess.run(
            [binary.path, files.CONFIG],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,  # a Ctrl-C for the starting process must not reach it before it has daemonized
            umask=0o077,
            timeout=max(1.0, deadline - time.monotonic()),
            check=True,
        )


def _quoted(path: str) -> str:
    """Return a path as a quoted string of the server's configuration file."""
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in os.fsencode(path)
    )
    return f'"{escaped}"'
