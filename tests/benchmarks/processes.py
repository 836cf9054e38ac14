"""Processes beside the measuring one, which exchange messages with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.forkserver import CONTEXT

PATIENCE = 120.0
"""Seconds to wait for a message of another process."""


def resident(pid: int, name: str = "VmRSS") -> int:
    """Return the resident memory of a process in bytes; 0 if the system does not report it or the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


class Other:
    """The pipe to another process."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def send(self, message: Any) -> None:
        """Send a message."""
        self._pipe.send(message)

    def receive(self) -> Any:
        """Return the next message. Raises RuntimeError if none arrives in time."""
        if not self._pipe.poll(PATIENCE):
            raise RuntimeError(f"a process sent nothing for {PATIENCE:g} s")
        return self._pipe.recv()


@contextmanager
def running(work: Callable[..., None], *arguments: Any) -> Iterator[Other]:
    """Run a function in another process, with its end of a pipe as first argument, during a `with` block."""
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=work, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        yield Other(here)
    finally:
        process.terminate()
        process.join()
        here.close()
