"""Run the snippets of the documents: the Python of a file as one program, its commands in one shell."""

from __future__ import annotations

import os
import shlex
import subprocess
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus
from tests import launcher
from tests.docs.markdown import ROOT, blocks

DOCUMENTS = (
    "README.md",
    *(f"docs/{name}.md" for name in ("tour", "for-daemons", "for-backends", "for-agents")),
    *(f"docs/{name}.md" for name in ("integration", "audit", "memory", "context")),
)
WITH_PYTHON = (*DOCUMENTS, "docs/mcp.md", "docs/http-events.md")
PROMPT, COMPLAINT = "$ ", "scratchbus: "
_SHELL = f'scratchbus() {{ {shlex.join(launcher.command("-m", "scratchbus.cli"))} "$@"; }}'


@pytest.mark.parametrize("name", WITH_PYTHON)
def test_the_python_of_a_document_runs_as_shown(name: str, place: Path, capsys: pytest.CaptureFixture[str]):
    """The output of a snippet must equal the `output` block after it, if there is one."""
    file = ROOT / name
    text = file.read_text("utf-8")
    snippets = blocks(text, "python")
    shown = {block.line: block.text for block in blocks(text, "output")}
    assert snippets
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for snippet in snippets:
            padding = "\n" * (snippet.line - 1)  # so that a traceback names the line of the document
            exec(compile(padding + snippet.text, str(file), "exec", dont_inherit=True), names)  # noqa: S102
            printed = capsys.readouterr().out
            output = shown.pop(snippet.line + snippet.text.count("\n") + 3, None)  # after two fences and an empty line
            assert output in (None, printed)
        assert not shown
    finally:
        for value in names.values():
            if isinstance(value, Bus):
                value.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_commands_of_a_document_run_as_shown(name: str, place: Path):
    lines = [line for block in blocks((ROOT / name).read_text("utf-8"), "console") for line in block.text.splitlines()]
    script = [_SHELL]
    for number, line in enumerate(lines):
        if line.startswith(PROMPT):
            output = list(takewhile(lambda line: not line.startswith(PROMPT), lines[number + 1 :]))
            is_refused = bool(output) and output[0].startswith(COMPLAINT)
            command = line.removeprefix(PROMPT)
            otherwise = "exit 1"
            script.append(f"{command} && {otherwise}" if is_refused else f"{command} || {otherwise}")
    done = subprocess.run(
        ["/bin/sh", "-x", "-c", "\n".join([*script, "true"])],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
