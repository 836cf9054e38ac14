"""Optional programs that check files of the project, from `.venv-tools` or from the PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_PATH = os.pathsep.join([str(Path(__file__).parents[1] / ".venv-tools" / "bin"), os.environ.get("PATH", "")])


def find_tool(name: str, comes_with: str) -> str:
    """Return the path of a program; skip the test if it is not installed."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        pytest.skip(f"NOT TESTED: {name} is not installed; {comes_with} installs it")
    return found
