"""Processes of a round that run an earlier commit of this repository, with the roles as they were then."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.faults.history.roles import Part

ROOT = Path(__file__).parents[3]
_HOST = """
import json, os, signal, sys
from pathlib import Path
from tests.faults.history.roles import Part, play
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that children leave no zombies
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            given = json.loads(line)
            given |= {"directory": Path(given["directory"])}
            play(Part(**{name: value for name, value in given.items() if name in Part._fields}))
        finally:
            os._exit(1)
    print(pid, flush=True)
os.killpg(0, signal.SIGKILL)  # the parent has ended
"""
"""A program that imports the older code once, forks a process for each line (a part as JSON), and prints its pid."""


class NoOlderVersion(Exception):
    """No older version is available; the message says why."""


def default_revision() -> str:
    """Return the tag of the latest release: commits between releases need not be compatible.

    Raises NoOlderVersion if there is none.
    """
    tags = _git("tag", "--sort=-creatordate", "--merged", "HEAD").decode().split()
    if not tags:
        raise NoOlderVersion("there is no release yet, name a revision with --older")
    return tags[0]


def check_out(revision: str, directory: Path) -> str:
    """Write the files of a revision into a directory; return its name. Raises NoOlderVersion."""
    name = _git("log", "-1", "--format=%h of %cs", f"{revision}^{{commit}}").decode().strip()
    packed = _git("archive", "--format=tar", revision, "scratchbus", "tests", "config", "pyproject.toml")
    with tarfile.open(fileobj=BytesIO(packed)) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        tar.extractall(directory)  # noqa: S202  # an archive of our own repository
    if not (directory / "tests/faults/history/roles.py").exists():
        raise NoOlderVersion(f"{revision} ({name}) has no rounds of faults yet")
    return name


def _git(*arguments: str) -> bytes:
    git = shutil.which("git")
    if git is None:
        raise NoOlderVersion("git is not installed")
    if not (ROOT / ".git").exists():
        raise NoOlderVersion(f"{ROOT} is not a git repository")
    done = subprocess.run([git, "-C", ROOT, *arguments], capture_output=True, check=False)
    if done.returncode:
        raise NoOlderVersion(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


class OlderProcess:
    """A process of the older version, with the methods that a round needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def join(self) -> None:
        eventually(lambda: not self.is_alive())


class Older:
    """The processes of a round that run the older version, if there is one; all are killed at the end."""

    def __init__(self, code: Path | None) -> None:
        self._host = None if code is None else subprocess.Popen(
            [sys.executable, "-c", _HOST], cwd=code, env=os.environ | {"PYTHONPATH": str(code)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.members: set[str] = set()
        """The names of these processes: every second one of each role."""

    def start(self, part: Part) -> OlderProcess | None:
        """Start a part with the older version; return None if it should run the current one."""
        if self._host is None or part.number % 2 == 0:
            return None
        assert self._host.stdin
        assert self._host.stdout
        given = {**part._asdict(), "directory": str(part.directory), "sabotage": list(part.sabotage)}
        self._host.stdin.write(json.dumps(given) + "\n")
        self._host.stdin.flush()
        pid = self._host.stdout.readline()
        assert pid, "the older version does not start"
        self.members.add(f"{part.role}-{part.number}")
        return OlderProcess(int(pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._host is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._host.pid, signal.SIGKILL)
            self._host.communicate()
