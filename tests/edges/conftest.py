"""The command line for tests: called in this process, or run in a process of its own."""

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
    """The exit code and the output of a command."""

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
    """A running command and its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self._output = output
        self.seen = b""

    def wait_for(self, text: str, within: float = PATIENCE) -> None:
        """Wait until the command has printed this text; fail after the deadline."""
        self._read_until(lambda: text.encode() in self.seen, f"{text!r}", within)

    def interrupt(self, with_signal: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, read the rest of the output and return the exit code."""
        self.process.send_signal(with_signal)
        code: list[int | None] = [None]

        def has_ended() -> bool:
            code[0] = self.process.poll()
            return code[0] is not None

        self._read_until(has_ended, "end", PATIENCE)
        self._read_rest()
        assert code[0] is not None
        return code[0]

    def _read_until(self, condition: Callable[[], bool], what: str, within: float) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"no {what} within {within} s; the output is {self.seen.decode()}"
            if select.select([self._output], [], [], 0.02)[0]:
                data = b""
                with suppress(OSError):  # the terminal's other end is closed
                    data = os.read(self._output, 65536)
                self.seen += data
                if not data:
                    time.sleep(0.01)

    def _read_rest(self) -> None:
        """Read the last output of a command that has ended."""
        with suppress(OSError):  # the terminal's other end is closed
            while select.select([self._output], [], [], 0)[0] and (data := os.read(self._output, 65536)):
                self.seen += data


class Cli:
    """The command line on a page of the test's own."""

    def __init__(self, page: str, capture: pytest.CaptureFixture[str]) -> None:
        self.page = page
        self._capture = capture

    def __call__(self, *arguments: str) -> Result:
        """Run a command in this process, on the test's page."""
        return self.anywhere("--page", self.page, *arguments)

    def anywhere(self, *arguments: str) -> Result:
        """Run a command in this process, without naming a page."""
        self._capture.readouterr()
        code = main(arguments)
        return Result(code, *self._capture.readouterr())

    def json(self, *arguments: str) -> Result:
        """Run a command with --json in this process; it must succeed."""
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
        """Start a command, on a terminal of its own if asked to; kill it at the end."""
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
    """The directory of one embedded engine for all tests of the command line."""
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
