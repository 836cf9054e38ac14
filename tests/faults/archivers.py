"""Processes that archive or erase, and kill themselves at a given step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from scratchbus import Bus
from scratchbus.archive.archiver import archive_bus
from scratchbus.archive.stores import DirectoryStore
from scratchbus.commands import erase as erasing
from scratchbus.engine.steps import Step
from scratchbus.errors import ArchiveBusy
from scratchbus.eventlog.trim import Archiving

LEASE = 0.05
"""Seconds that a lease lasts, so that tests wait little for the lease of a killed process."""

SETTINGS: dict[str, Any] = {"retain": "1ms", "retain_events": 2, "archive_segment": 8}


def connect(url: str, bus: str, directory: Path, **more: Any) -> Bus:
    """Open a bus with the settings of these archivers."""
    return Bus.connect(url, bus=bus, source="archiver", archive_url=str(directory), **SETTINGS | more)


def archive(url: str, bus: str, directory: Path) -> None:
    """Archive once, as soon as the lease of a killed archiver has ended."""
    with connect(url, bus, directory) as opened:
        _once_free(lambda: archive_bus(opened, lease=LEASE))


def _once_free(act: Callable[[], object]) -> None:
    """Act once no other process archives."""
    while True:
        with suppress(ArchiveBusy):
            act()
            return


def archive_repeatedly(url: str, bus: str, directory: Path, stop: Path) -> None:
    """Archive until the file `stop` exists; stand by while another process archives."""
    with connect(url, bus, directory, archive_segment=100) as opened:
        while not stop.exists():
            with suppress(ArchiveBusy):
                archive_bus(opened, patience=3600.0)


def archive_and_die(url: str, bus: str, directory: Path, step: int, steps: Path) -> None:
    """Archive up to this step, then die as by `kill -9`.

    If there are fewer steps, write their number to `steps`.
    """
    _die_at(step, steps, lambda: archive(url, bus, directory))


def erase(url: str, bus: str, directory: Path, id: str) -> None:
    """Erase once, as soon as the lease of a killed process has ended."""
    with connect(url, bus, directory) as opened:
        _once_free(lambda: opened.page().erase(id, reason="asked for"))


def erase_and_die(url: str, bus: str, directory: Path, id: str, step: int, steps: Path) -> None:
    """Erase up to this step, then die; see `archive_and_die`."""
    erasing._LEASE_MS = round(LEASE * 1000)  # so that nobody waits for the lease of the killed process
    _die_at(step, steps, lambda: erase(url, bus, directory, id))


def _die_at(step: int, steps: Path, act: Callable[[], object]) -> None:
    """Act up to this step; there is a step before and after each call to the store or the engine."""
    taken = 0

    def take() -> None:
        nonlocal taken
        taken += 1
        if taken == step:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("put_new", "replace", "delete"):
        setattr(DirectoryStore, name, _around(getattr(DirectoryStore, name), take))
    _die_around_scripts(take)
    act()
    steps.write_text(str(taken))


def _around(call: Callable[..., Any], take: Callable[[], None]) -> Callable[..., Any]:
    def wrapped(*arguments: Any) -> Any:
        take()
        result = call(*arguments)
        take()
        return result

    return wrapped


def _die_around_scripts(take: Callable[[], None]) -> None:
    run = Archiving._do

    def wrapped(self: Archiving, *arguments: Any, **named: Any) -> Step[list[Any]]:
        take()
        reply = yield from run(self, *arguments, **named)
        take()
        return reply

    setattr(Archiving, "_do", wrapped)  # noqa: B010  # mypy refuses a plain assignment
