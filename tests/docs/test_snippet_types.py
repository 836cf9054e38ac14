"""The Python of the documents passes strict type checking."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks
from tests.docs.test_snippets import WITH_PYTHON

PYRIGHT = ROOT / ".venv-tools" / "bin" / "basedpyright"  # `make docs` installs it, with its own node


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write the Python of each document into a file, on the same line numbers, so that errors refer to the document."""
    place = tmp_path_factory.mktemp("snippets")
    written = []
    for name in WITH_PYTHON:
        lines: list[str] = []
        for snippet in blocks((ROOT / name).read_text("utf-8"), "python"):
            lines += [""] * (snippet.line - 1 - len(lines)) + snippet.text.splitlines()
        file = place / f"{Path(name).stem.lower().replace('-', '_')}.py"
        file.write_text("\n".join([*lines, ""]), "utf-8")
        written.append(file)
    return written


def _checked(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.slow
def test_mypy_accepts_the_documents(programs: list[Path]):
    strict = ("--config-file=", "--strict", "--follow-imports=silent", "--explicit-package-bases")
    done = _checked(sys.executable, "-m", "mypy", *strict, "--cache-dir", os.devnull, *programs)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not PYRIGHT.exists(), reason="NOT TESTED: pyright is not installed; `make docs` installs it")
def test_pyright_accepts_the_documents(programs: list[Path]):
    place = programs[0].parent
    settings = {"include": ["."], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (place / "pyrightconfig.json").write_text(json.dumps(settings))
    done = _checked(PYRIGHT, "--project", place, "--pythonpath", sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr
