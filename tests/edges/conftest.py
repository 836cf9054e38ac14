"""The command line as it is used: as processes, and called here where a process would only cost time."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scratchbus import Bus
from scratchbus.cli import main
from scratchbus.engine.embedded import server
from tests import launcher
from tests.waiting import PATIENCE

PROGRAM = launcher.command("-m", "scratchbus.cli")
ROOT = Path(__file__).parents[2]


class Result(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def document(self) -> dict[str, Any]:
        (only,) = self.documents
        return only


class Running:
    """A command that goes on, and what it prints; on a terminal of its own where one is asked for."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self._output = output
        self.seen = b""

    def wait_for(self, text: str, within: float = PATIENCE) -> None:
        """Return once the command has printed this; fail when it does not in time."""
        self._read_until(lambda: text.encode() in self.seen, f"{text!r}", within)

    def interrupt(self, with_signal: signal.Signals = signal.SIGINT) -> int:
        """Send a signal and return the exit code, once all that it printed is read."""
        self.process.send_signal(with_signal)
        code: list[int | None] = [None]

        def is_over() -> bool:
            code[0] = self.process.poll()
            return code[0] is not None

        self._read_until(is_over, "the end", PATIENCE)
        self._read_rest()
        assert code[0] is not None
        return code[0]

    def _read_until(self, condition: Callable[[], bool], what: str, within: float) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not within {within} s: {what}; there was {self.seen.decode()}"
            if select.select([self._output], [], [], 0.02)[0]:
                try:
                    self.seen += os.read(self._output, 65536)
                except OSError:  # the terminal's other end is closed
                    time.sleep(0.01)

    def _read_rest(self) -> None:
        """Read what it printed just before it ended."""
        with suppress(OSError):  # the terminal's other end is closed
            while select.select([self._output], [], [], 0)[0] and (data := os.read(self._output, 65536)):
                self.seen += data


class Cli:
    """The command line on an engine and page of the test's own."""

    def __init__(self, page: str, capture: pytest.CaptureFixture[str]) -> None:
        self.page = page
        self._capture = capture

    def __call__(self, *arguments: str) -> Result:
        """Run a command in this process, on the test's page."""
        return self.anywhere("--page", self.page, *arguments)

    def anywhere(self, *arguments: str) -> Result:
        """Run a command in this process, on the page that it is on by itself."""
        self._capture.readouterr()
        code = main(arguments)
        return Result(code, *self._capture.readouterr())

    def json(self, *arguments: str) -> Result:
        """Run a command in this process that prints JSON, and succeeds."""
        done = self(*arguments, "--json")
        assert done.code == 0, done.err
        return done

    def add(self, content: str = "The build is red", *options: str, type: str = "observation") -> str:
        """Add an observation and return its id."""
        id = self.json("add", type, content, "--source", "test", *options).document["id"]
        assert isinstance(id, str)
        return id

    def process(self, *arguments: str, given: str | bytes = "", **environment: str) -> Result:
        """Run a command as a process of its own, with pipes."""
        done = subprocess.run(
            [*PROGRAM, "--page", self.page, *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            input=given.encode() if isinstance(given, str) else given,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def start(self, *arguments: str, terminal: bool = False, program: Sequence[str] = PROGRAM) -> Iterator[Running]:
        """Start a command that goes on; what is left of it at the end is killed."""
        reader, writer = pty.openpty() if terminal else os.pipe()
        process = subprocess.Popen(
            [*program, "--page", self.page, *arguments],
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"},
            stdin=writer if terminal else subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(writer)
        try:
            yield Running(process, reader)
        finally:
            process.kill()
            process.wait()
            os.close(reader)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have one embedded engine for all tests of the command line."""
    directory = tmp_path_factory.mktemp("cli")
    yield directory
    server.stop(directory)


@pytest.fixture
def cli(
    home: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Cli:
    monkeypatch.setenv("SCRATCHBUS_URL", f"embedded:{home}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Cli(re.sub(r"[^A-Za-z0-9_]", "", request.node.name)[:128], capsys)


@pytest.fixture
def bus(home: Path) -> Iterator[Bus]:
    with Bus.connect(f"embedded:{home}", source="test") as bus:
        yield bus
