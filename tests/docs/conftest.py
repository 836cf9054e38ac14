"""A working directory for snippets of the documents, with its own embedded engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scratchbus.engine.embedded import server


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory in which `Bus.connect()` starts an engine that is stopped afterwards."""
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    monkeypatch.setenv("SCRATCHBUS_HOME", str(home))
    monkeypatch.chdir(here)
    yield here
    server.stop(home)
