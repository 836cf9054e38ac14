"""The processes of the demo: started, watched and stopped by their ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

import scratchbus
from scratchbus.errors import ScratchbusError

T = TypeVar("T")

_STOP_SECONDS = 5.0
_LOOK = 0.05  # seconds between two looks at what is waited for


class DemoFailed(ScratchbusError):
    """Something that should have happened in the demo did not."""


class Crew:
    """Daemons as processes of their own, each with a log file. Leaving the context stops them all."""

    def __init__(self, logs: Path, environment: Mapping[str, str], interrupted: threading.Event) -> None:
        self.logs = logs
        self._interrupted = interrupted
        self._environment = _environment(environment)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self, name: str, daemon: str, *arguments: str) -> int:
        """Start a daemon under a name; return its process id. Raises KeyboardInterrupt after a signal."""
        self._check_interrupt()
        command = [sys.executable, str(_script(daemon)), "--name", name, *arguments]
        with (self.logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment)
        self._processes[name] = process
        return process.pid

    def is_done(self, name: str) -> bool:
        """Say whether a daemon has done its work and ended. Raises DemoFailed when it failed."""
        code = self._processes[name].poll()
        if code:
            raise self._ended(name, code)
        return code == 0

    def have_started(self) -> bool:
        """Say whether all daemons have got so far that a signal stops them cleanly: they log that."""
        return all(b'"started"' in (self.logs / f"{name}.log").read_bytes() for name in self._processes)

    def wait_until(self, what: str, look: Callable[[], T | None], seconds: float = 30.0) -> T:
        """Look until there is something, and return it.

        Raises DemoFailed in the end or when a daemon fails, KeyboardInterrupt after a signal.
        """
        deadline = time.monotonic() + seconds
        while not (found := look()):
            self._check_interrupt()
            for name in self._processes:
                self.is_done(name)
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {seconds:g} s in vain until {what}")
            time.sleep(_LOOK)
        return found

    def stop(self) -> dict[str, int]:
        """Ask all to stop, wait, and end by force whoever does not; return their exit codes by name."""
        running = [process for process in self._processes.values() if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return {name: process.returncode for name, process in self._processes.items()}

    def _check_interrupt(self) -> None:
        if self._interrupted.is_set():
            raise KeyboardInterrupt

    def _ended(self, name: str, code: int) -> DemoFailed:
        lines = (self.logs / f"{name}.log").read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return DemoFailed(f"{name} ended with exit code {code}: {last}")


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with what is given, and so that daemons find this scratchbus."""
    here = str(Path(scratchbus.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return {**os.environ, **given, "PYTHONPATH": path}


def _script(daemon: str) -> Path:
    """Return the program of a daemon, installed or in a checkout."""
    package = Path(scratchbus.__file__).parent
    for directory in (package / "_daemons", package.parent / "daemons"):
        if (directory / f"{daemon}.py").is_file():
            return directory / f"{daemon}.py"
    raise DemoFailed(f"daemons/{daemon}.py did not come with this installation of scratchbus; install it again")


@contextmanager
def without_settings() -> Iterator[None]:
    """Leave the user's own settings out: they are for the user's bus."""
    own = {name: value for name, value in os.environ.items() if name.startswith("SCRATCHBUS_")}
    for name in own:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(own)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Set the event on SIGINT and SIGTERM, for a crew to see.

    An exception right from the handler could leave a process that has just been started to itself.
    """
    interrupted = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: interrupted.set()) for number in numbers}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
