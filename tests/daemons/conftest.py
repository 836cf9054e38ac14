"""Fixtures: a bus for the logic of daemons, and an engine and daemons as processes that end with the test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import structlog
from redis import Redis
from redis.exceptions import RedisError
from structlog.testing import LogCapture

from scratchbus import Bus, Page
from scratchbus.engine.embedded.binary import find_binary
from tests import launcher
from tests.threads import Threads
from tests.waiting import PATIENCE, eventually

Run = Callable[[threading.Event], None]

ROOT = Path(__file__).parents[2]


class Engine:
    """A server on its own unix socket that keeps its data when it is killed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "engine.sock"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = find_binary(None, self.directory).path
        options = ["--port", "0", "--unixsocket", str(self.socket), "--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen(
            [str(program), *options, "--maxmemory-policy", "noeviction"], cwd=self.directory, stdout=subprocess.DEVNULL
        )
        eventually(self._answers, "the engine has loaded its data")

    def _answers(self) -> bool:
        with contextlib.suppress(RedisError), Redis(unix_socket_path=str(self.socket)) as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.socket.unlink(missing_ok=True)


class Daemon:
    """A daemon process and its output."""

    def __init__(self, name: str, arguments: tuple[str, ...], environment: dict[str, str], files: Path) -> None:
        self.name = name
        self._out = files.with_suffix(".out")
        self._err = files.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                launcher.command(ROOT / "daemons" / f"{name}.py", *arguments),
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, cwd=files.parent,
            )  # fmt: skip

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def log_lines(self) -> list[dict[str, Any]]:
        """Return the complete log lines."""
        return [json.loads(line) for line in self.err.splitlines(keepends=True) if line.endswith("}\n")]

    def has_logged(self, event: str) -> bool:
        return any(line["event"] == event for line in self.log_lines)

    def end(self, number: int = signal.SIGTERM, within: float = PATIENCE) -> int:
        """Send a signal, wait, and return the exit code."""
        self.process.send_signal(launcher.KILL if number == signal.SIGKILL else number)
        return self.process.wait(within)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="engine-") as name:
        engine = Engine(Path(name))
        engine.start()
        try:
            yield engine
        finally:
            engine.kill()


@pytest.fixture
def start(engine: Engine, tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Start daemons on the engine; kill those that still run at the end."""
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "SCRATCHBUS_URL": engine.url, "XDG_STATE_HOME": str(tmp_path / "state"),
        "SCRATCHBUS_ARCHIVE_URL": str(tmp_path / "archive"),
    }  # fmt: skip
    started: list[Daemon] = []

    def start_one(name: str, *arguments: object, **variables: str) -> Daemon:
        daemon = Daemon(name, tuple(map(str, arguments)), environment | variables, tmp_path / f"{name}-{len(started)}")
        started.append(daemon)
        return daemon

    yield start_one
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()


@pytest.fixture
def log_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Any]]:
    """Capture the log entries of a module from now on, however logging is configured."""

    def capture(module: str) -> list[Any]:
        captured = LogCapture()
        every_level = structlog.make_filtering_bound_logger(0)
        logger = structlog.wrap_logger(None, processors=[captured], wrapper_class=every_level)
        monkeypatch.setattr(f"{module}.logger", logger)
        return captured.entries

    return capture


# -- a bus in this process --------------------------------------------------------------------------------------------


@pytest.fixture
def url() -> str:
    return f"memory://{uuid4().hex}"


@pytest.fixture
def bus(url: str) -> Iterator[Bus]:
    with Bus.connect(url, source="tester") as opened:
        yield opened


@pytest.fixture
def page(bus: Bus) -> Page:
    return bus.page("main")


@pytest.fixture
def running() -> Callable[[Run], contextlib.AbstractContextManager[None]]:
    """Run a daemon's work in a thread during a with block, which raises the errors of the work."""

    @contextlib.contextmanager
    def in_thread(run: Run) -> Iterator[None]:
        threads = Threads(lambda: run(threads.stop))
        with threads:
            yield

    return in_thread
