"""Servers with a preloaded library that can cut their power and shift their clock."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.servers import Server
from tests.waiting import eventually

_SOURCE = Path(__file__).with_name("preload.c")
_SKEW, _STALL, _STALLED = (8 * number for number in range(3))
"""The offsets of the shared fields; see the library's source."""


@cache
def compiler() -> str | None:
    """Return the system's C compiler, or None if there is none or this is not Linux."""
    return (shutil.which("cc") or shutil.which("gcc")) if sys.platform == "linux" else None


@cache
def _library() -> Path:
    """Compile the library, once per process, in a directory that no other user can write to."""
    found = compiler()
    assert found, "no C compiler is installed"
    library = Path(tempfile.mkdtemp(prefix="scratchbus-preload-")) / "preload.so"
    subprocess.run([found, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True)
    import atexit

    atexit.register(shutil.rmtree, library.parent, ignore_errors=True)
    return library


class Machine(Server):
    """A server with its own disk and clock, as if on its own machine."""

    def __init__(self, binary: Path, **given: Any) -> None:
        super().__init__(binary, **given)
        self._ledger = self.directory / "ledger"
        control = self.directory / "control"
        control.write_bytes(bytes(mmap.PAGESIZE))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.environment = {
            "LD_PRELOAD": str(_library()),
            "SCRATCHBUS_CONTROL": str(control),
            "SCRATCHBUS_LEDGER": str(self._ledger),
        }

    @property
    def skew(self) -> float:
        """The seconds by which its clock is ahead of ours."""
        return self._get(_SKEW) / 1e6

    @skew.setter
    def skew(self, seconds: float) -> None:
        self._set(_SKEW, round(seconds * 1e6))

    def cut_power(self, random: Random | None = None, *, within: float = 2.0) -> int:
        """Kill it while its disk stalls, and drop the bytes written since the last sync; return their number.

        Waits up to `within` seconds for a write that is then not synced. With `random`, a random part of the bytes is
        kept, which may end inside a command, as after a real power cut.
        """
        self._set(_STALL, 1)
        with suppress(AssertionError):  # nobody writes
            eventually(lambda: self._get(_STALLED), within=within)
        self.kill()
        self._set(_STALL, 0)
        self._set(_STALLED, 0)
        return sum(self._drop_unsynced(path, random) for path in self.directory.glob("appendonlydir/*"))

    def _drop_unsynced(self, path: Path, random: Random | None) -> int:
        written, synced = path.stat().st_size, self._synced().get(path.stat().st_ino, 0)
        if written <= synced:
            return 0
        kept = synced if random is None else random.randint(synced, written - 1)
        os.truncate(path, kept)
        return written - kept

    def _synced(self) -> dict[int, int]:
        """Return how many bytes of each file, by inode, the last completed sync has put on the disk."""
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        return {int(inode): int(size) for inode, size in map(str.split, lines)}

    def _get(self, field: int) -> int:
        return int(struct.unpack_from("q", self._control, field)[0])

    def _set(self, field: int, value: int) -> None:
        struct.pack_into("q", self._control, field, value)
