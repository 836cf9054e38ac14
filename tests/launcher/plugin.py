"""Start the launcher of a test run, which all workers share."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.launcher import CLIENT, VARIABLE


class _Running:
    """A running launcher and the directory of its socket."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="sb-")  # short, since the path of a socket is limited
        address, client = f"{self._directory}/launcher", Path(self._directory, "python")
        client.write_text(f"#!{sys.executable} -IS\n{CLIENT.read_text()}")
        client.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(128)
            number = listening.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.launcher.server", str(number), client], cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE, pass_fds=[number], start_new_session=True,
            )  # fmt: skip
        os.environ[VARIABLE] = address

    def end(self) -> None:
        with self._process:
            pass  # closes its standard input, so it ends
        del os.environ[VARIABLE]
        shutil.rmtree(self._directory, ignore_errors=True)


_KEY = pytest.StashKey[_Running]()


def pytest_configure(config: pytest.Config) -> None:
    """Start a launcher, in the main process only."""
    if not hasattr(config, "workerinput"):
        config.stash[_KEY] = _Running()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the launcher and every program that it started."""
    if _KEY in config.stash:
        config.stash[_KEY].end()
