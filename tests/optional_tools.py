"""Programs that check files of the project: of the environment of `make docs`, or of the system."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_PLACES = os.pathsep.join([str(Path(__file__).parents[1] / ".venv-tools" / "bin"), os.environ.get("PATH", "")])


def find_tool(name: str, comes_with: str) -> str:
    """Return where a program is; without it the test is skipped, and says so."""
    found = shutil.which(name, path=_PLACES)
    if found is None:
        pytest.skip(f"NOT TESTED: {name} is not installed ({comes_with}), so it has checked nothing")
    return found
