"""Directories for embedded engines, which are stopped with the test."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scratchbus.engine.embedded import binary
from scratchbus.engine.embedded.server import find_running, stop
from tests.log.engine_processes import is_alive


def end(directory: Path) -> None:
    """Stop the engine of a directory, and kill it if that fails."""
    engine = find_running(directory)
    if engine is None:
        return
    try:
        stop(directory)
    finally:
        if is_alive(engine.pid):
            os.kill(engine.pid, signal.SIGKILL)


@pytest.fixture
def new_directory(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Name directories for engines; stop the engines that run at the end."""
    made: list[Path] = []

    def new(name: str) -> Path:
        made.append(tmp_path / name)
        return made[-1]

    yield new
    for directory in made:
        end(directory)


@pytest.fixture
def directory(new_directory: Callable[[str], Path]) -> Path:
    return new_directory("bus")


@pytest.fixture
def without_engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide every server program; return a directory that is alone on PATH."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.setattr(binary, "_bundled", lambda: iter(()))
    monkeypatch.setenv("PATH", str(path))
    return path
