"""The document on HTTP: its commands work against a server, and its tables match the code."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from scratchbus import errors
from scratchbus.errors import ScratchbusError
from scratchbus.http.callers import SCOPES
from scratchbus.http.problems import status_of
from tests import launcher
from tests.docs.markdown import ROOT, blocks, codes, rows
from tests.edges.http.conftest import serving

TEXT = (ROOT / "docs" / "http.md").read_text("utf-8")
_SHELL = f'scratchbus() {{ {shlex.join(launcher.command("-m", "scratchbus.cli"))} "$@"; }}'


@pytest.mark.slow
@pytest.mark.real
def test_the_commands_of_the_document_work(embedded_url: str, tmp_path: Path):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with serving(embedded_url) as served:
        script = "\n".join([_SHELL, *(block.text for block in blocks(TEXT, "sh"))])
        script = script.replace("http://127.0.0.1:8765", served.url).replace("curl -s", "curl -sS --fail-with-body")
        done = subprocess.run(
            ["/bin/sh", "-e", "-x", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "urn:scratchbus:problem" not in done.stdout
    for expected in (
        '"status":"resolved"',
        '"kind":"preference"',
        '"role":"summary"',
        '"valid_at":"2026-01-01T00:00:00Z"',
        "shop -> runs_on -> Node 24",
        "checked\n",
    ):
        assert expected in done.stdout
    assert (tmp_path / "tokens.yaml").is_file()


def test_the_error_table_matches_the_code():
    table = [(int(row[0]), codes(row[1])) for row in rows(TEXT, "## Errors")]
    documented = {name: status for status, names in table for name in names}
    for name, status in documented.items():
        kind: type[ScratchbusError] = getattr(errors, name)
        assert status_of(kind.__new__(kind)) == status, name
    for name, found in inspect.getmembers(errors, inspect.isclass):
        if issubclass(found, ScratchbusError):
            above = next((each.__name__ for each in found.__mro__ if each.__name__ in documented), None)
            status = status_of(found.__new__(found))
            assert status == (500 if above is None else documented[above]), name


def test_all_scopes_are_documented():
    assert {codes(row[0])[0] for row in rows(TEXT, "## Who speaks")} == set(SCOPES)


def test_documented_options_exist():
    given = set(re.findall(r"`(--[a-z-]+)", TEXT)) - {"--tools"}
    command = launcher.command("-m", "scratchbus.cli", "serve", "--help")
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
    assert {option for option in given if option not in shown} <= {"--serve", "--instance"}
