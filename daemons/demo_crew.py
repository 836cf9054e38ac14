"""The processes of the demo: starts, watches and stops them by process id."""

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

_STOP_SECONDS = 20.0  # a daemon takes one or two; a machine that is busy with other things may stall for longer
_STACKS_SECONDS = 2.0
_POLL_INTERVAL = 0.05  # seconds between two checks of a condition


class DemoFailed(ScratchbusError):
    """Something that the demo should show did not happen."""


class Crew:
    """Daemons, each a process with a log file. Leaving the context stops them all."""

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
        """Start a daemon under a name; return its process id. Raises KeyboardInterrupt once interrupted."""
        self._check_interrupt()
        command = [sys.executable, "-P", "-m", "scratchbus.cli", "run", daemon, "--name", name, *arguments]
        with (self.logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment)
        self._processes[name] = process
        return process.pid

    def knows(self, name: str) -> bool:
        """Return whether a daemon was started under this name."""
        return name in self._processes

    def is_done(self, name: str) -> bool:
        """Return whether a daemon has finished. Raises DemoFailed if it failed, KeyboardInterrupt once interrupted."""
        code = self._processes[name].poll()
        if code:
            self._check_interrupt()  # Ctrl-C reaches the daemons too, and one that still starts fails by it
            raise self._exit_failure(name, code)
        return code == 0

    def have_started(self) -> bool:
        """Return whether all daemons have logged that they started, so that a signal stops them cleanly."""
        return all(b'"started"' in (self.logs / f"{name}.log").read_bytes() for name in self._processes)

    def wait_until(self, goal: str, condition: Callable[[], T | None], seconds: float = 30.0) -> T:
        """Poll a condition until its result is truthy, and return that.

        Raises DemoFailed after `seconds` or when a daemon fails, KeyboardInterrupt once interrupted.
        """
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            self._check_interrupt()
            for name in self._processes:
                self.is_done(name)
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {seconds:g} s in vain until {goal}")
            time.sleep(_POLL_INTERVAL)
        return found

    def pause(self, seconds: float) -> None:
        """Wait. Raises KeyboardInterrupt once interrupted."""
        self._interrupted.wait(seconds)
        self._check_interrupt()

    def wait_for_end(self) -> None:
        """Wait until the user interrupts; that ends the wait only, and a second time counts."""
        self._interrupted.wait()
        self._interrupted.clear()

    def stop(self) -> dict[str, int]:
        """Ask all daemons to stop, wait, and abort those that do not; return the exit codes by name.

        The log of an aborted daemon ends with the stacks of its threads.
        """
        running = [process for process in self._processes.values() if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _abort(process)
        return {name: process.returncode for name, process in self._processes.items()}

    def _check_interrupt(self) -> None:
        if self._interrupted.is_set():
            raise KeyboardInterrupt

    def _exit_failure(self, name: str, code: int) -> DemoFailed:
        lines = (self.logs / f"{name}.log").read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "no output")
        return DemoFailed(f"{name} ended with exit code {code}: {last}")


def _abort(process: subprocess.Popen[bytes]) -> None:
    """End a process that does not stop: let it write its stacks, or else kill it."""
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(_STACKS_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with these updates, in which Python finds this scratchbus.

    Python writes the stacks of its threads there when it is aborted.
    """
    checkout = str(Path(scratchbus.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (checkout, os.environ.get("PYTHONPATH"))))
    return {**os.environ, **variables, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}


@contextmanager
def without_settings() -> Iterator[None]:
    """Hide the SCRATCHBUS_ variables of the user, which are meant for the user's own bus."""
    hidden = {name: value for name, value in os.environ.items() if name.startswith("SCRATCHBUS_")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, for a crew to check.

    An exception raised by the handler could come between starting a process and recording it.
    """
    interrupted = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: interrupted.set()) for number in numbers}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
