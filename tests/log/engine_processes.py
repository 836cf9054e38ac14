"""Helpers that kill, query and edit embedded engines."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from redis import Redis

from scratchbus.engine.embedded import directory as engine_directory
from scratchbus.engine.embedded.server import EmbeddedEngine
from tests.waiting import eventually

DURABLE: dict[str, Any] = {"ack": "fsync", "appendfsync": "always"}
"""With `everysec`, an engine answers before it writes while a sync to a slow disk goes on, for up to two seconds."""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def kill(engine: EmbeddedEngine) -> None:
    os.kill(engine.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(engine.pid))


def client(engine: EmbeddedEngine) -> Redis:
    return Redis(unix_socket_path=str(engine.socket), decode_responses=True)


def edit_record(directory: Path, **changes: object) -> None:
    path = directory / engine_directory.RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
