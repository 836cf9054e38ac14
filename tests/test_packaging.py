"""Locks and wheels: dependencies are pinned, and the wheel is typed and complete."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import daemons
from tools.release_check import SMOKE

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK, DEMO_LOCK, TOOLS_LOCK = (
    (ROOT / name).read_text() for name in ("requirements.lock", "requirements-demo.lock", "requirements-tools.lock")
)
LOCKS = pytest.mark.parametrize("lock", [LOCK, DEMO_LOCK, TOOLS_LOCK], ids=["everything", "demo", "tools"])
TOOL_GROUPS = {"docs", "files", "release"}
"""The dependency groups of `make docs` and `make release-check`, which use `.venv-tools`."""

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


class Pin(NamedTuple):
    name: str
    version: str
    hashes: list[str]


def _pins(lock: str) -> Iterator[Pin]:
    """Yield the pins of a lock; fail on any other line."""
    for entry in lock.replace("\\\n", " ").splitlines():
        if entry.startswith("#"):
            continue
        wanted = Requirement(entry.partition("--hash")[0])
        (specifier,) = wanted.specifier
        assert specifier.operator == "==", entry
        yield Pin(canonicalize_name(wanted.name), specifier.version, _HASH.findall(entry))


def _requirements(lock: str) -> list[Requirement]:
    """Return the requirements of `pyproject.toml` that a lock must pin."""
    groups: dict[str, list[Any]] = PROJECT["dependency-groups"]
    wanted = [group for name, group in groups.items() if (name in TOOL_GROUPS) == (lock == TOOLS_LOCK)]
    if lock == LOCK:
        wanted += [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    return [
        Requirement(text) for group in wanted for text in group if isinstance(text, str)
    ]  # a dict includes another group


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel that would be published."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def packed(wheel: Path) -> list[str]:
    """Return the names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a new virtual environment that borrows our dependencies; return its `scratchbus`."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home)
    programs = home / "bin"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(programs / "python"), "install", "--no-index"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True, capture_output=True, env=environment)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(
        sysconfig.get_path("purelib")
    )  # as a plain path: its own .pth files do not count
    return programs / "scratchbus"


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        [program, *arguments],
        cwd=program.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.mark.parametrize("lock", [LOCK, TOOLS_LOCK], ids=["everything", "tools"])
def test_a_lock_pins_every_dependency_within_its_range(lock: str):
    versions = {pin.name: pin.version for pin in _pins(lock)}
    for wanted in _requirements(lock):
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)], prereleases=True), str(wanted)


@LOCKS
def test_every_pin_has_a_hash(lock: str):
    assert [pin.name for pin in _pins(lock) if not pin.hashes] == []


def test_the_demo_lock_is_part_of_the_full_lock():
    everything = {pin.name: pin for pin in _pins(LOCK)}
    demo_pins = list(_pins(DEMO_LOCK))
    assert [everything.get(pin.name) for pin in demo_pins] == demo_pins


@LOCKS
def test_a_lock_has_no_paths_and_no_urls(lock: str):
    options = [line for line in lock.splitlines() if line.startswith("-")]
    assert options == []
    assert "://" not in lock
    assert re.search(r"(^|[\s@])(/|\./|file:)", lock, re.MULTILINE) is None


@pytest.fixture
def demo_alone(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `scratchbus demo` with only the packages of its lock importable."""
    allowed = {pin.name for pin in _pins(DEMO_LOCK)} | {"scratchbus"}
    hidden = [
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if module.isidentifier() and not allowed & {canonicalize_name(owner) for owner in owners}
    ]
    assert "anyio" in hidden
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({hidden!r}))\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "scratchbus.cli", "demo", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)

    return run


@pytest.mark.slow
@pytest.mark.real
def test_the_demo_needs_only_its_lock(demo_alone: Callable[..., subprocess.CompletedProcess[str]]):
    done = demo_alone("--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resolved"] == 5


def test_demo_serve_names_the_missing_extra(
    demo_alone: Callable[..., subprocess.CompletedProcess[str]],
):
    done = demo_alone("--serve")
    assert (done.returncode, done.stdout) == (5, "")
    assert "pip install 'scratchbus[http]'" in done.stderr


def test_the_release_check_uses_every_extra():
    assert SMOKE.keys() == {"", *PROJECT["project"]["optional-dependencies"]}


def test_the_installed_version_matches_the_project():
    assert importlib.metadata.version("scratchbus") == PROJECT["project"]["version"]


def test_the_console_script_can_be_loaded():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="scratchbus")
    assert callable(script.load())


def test_the_wheel_is_marked_as_typed(packed: list[str]):
    assert "scratchbus/py.typed" in packed


def test_the_wheel_includes_the_configuration(packed: list[str]):
    here = {f"scratchbus/_config/{path.name}" for path in (ROOT / "config").iterdir()}
    assert here <= set(packed)


def test_the_wheel_includes_the_lua_scripts(packed: list[str]):
    here = {str(path.relative_to(ROOT)) for path in (ROOT / "scratchbus").rglob("*.lua")}
    assert here
    assert here <= set(packed)


def test_the_wheel_contains_only_the_package(packed: list[str]):
    tops = {name.partition("/")[0] for name in packed}
    assert tops == {"scratchbus", f"scratchbus-{PROJECT['project']['version']}.dist-info"}


@pytest.mark.slow
def test_an_installed_wheel_runs_each_daemon(installed: Path):
    """All run in one process, which imports the libraries once; the demo starts each as its own process."""
    code = (
        "import sys; from scratchbus.cli import main\n"
        "sys.exit(max(main(['run', name, '--help']) for name in sys.argv[1:]))"
    )
    done = _run(installed.with_name("python"), "-c", code, *daemons.NAMES)
    assert done.returncode == 0, done.stderr
    usages = [line for line in done.stdout.splitlines() if line.startswith("Usage: ")]
    assert usages == [f"Usage: scratchbus run {name} [OPTIONS]" for name in daemons.NAMES]


@pytest.mark.slow
def test_an_installed_wheel_names_its_daemons(installed: Path):
    done = _run(installed, "run", "nobody")
    assert done.returncode == 2
    assert f"there is no daemon 'nobody'; choose one of: {', '.join(daemons.NAMES)}" in done.stderr


@pytest.mark.slow
@pytest.mark.real
def test_an_installed_wheel_runs_the_demo(installed: Path):
    done = _run(installed, "demo", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resolved"] == 5
