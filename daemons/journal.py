"""Reads the journal of a systemd unit with `journalctl`, starting after the last entry read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from scratchbus.errors import InvalidInput

from .log_file import MAX_LINE, Line

_BLOCK = 1 << 16
_MAX_ENTRY = 16 * MAX_LINE
_STABLE = ("b", "m", "t", "x")  # the parts of a cursor that an entry has wherever it is stored: boot, times, hash

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class JournalPosition:
    """How far a journal was read: the cursor of an entry, as journald calls it."""

    cursor: str


@dataclass(frozen=True)
class JournalUnit:
    """The unit whose journal is read."""

    name: str

    def __str__(self) -> str:
        return f"journal:{self.name}"


class Journal:
    """Reads the entries of a unit as lines of syslog without their time: `host sshd[24200]: Failed password …`."""

    def __init__(self, unit: JournalUnit, stored: JournalPosition | None = None, from_start: bool = False) -> None:
        self._unit = unit
        self._position = stored
        self._start = None if from_start else stored
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._rest = b""
        self._is_skipping = False  # the rest of an entry that is too long
        self._has_read = False

    @property
    def position(self) -> JournalPosition | None:
        """The position to store. It moves past an entry when the next one is requested."""
        return self._position

    def close(self) -> None:
        """End journalctl; the position stays."""
        process, self._process, self._start = self._process, None, self._position
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            self._errors.close()

    def lines(self, final: bool = False) -> Iterator[Line]:
        """Yield the lines that are there now; with `final`, all until the end of the journal.

        Raises InvalidInput when journalctl cannot be run, or fails.
        """
        process = self._process or self._started(follow=not final)
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while True:
            try:
                block = os.read(process.stdout.fileno(), _BLOCK)
            except BlockingIOError:
                return
            *entries, self._rest = (self._rest + block).split(b"\n")
            for entry in entries:
                if self._is_skipping:
                    self._is_skipping = False
                else:
                    yield from self._lines_of(entry)
            if self._is_skipping or len(self._rest) > _MAX_ENTRY:
                self._skip_rest()
            if not block:
                self._end(process, final)
                return

    def _started(self, follow: bool) -> subprocess.Popen[bytes]:
        program = shutil.which("journalctl")
        if program is None:
            raise InvalidInput("there is no journalctl on PATH, which --journal needs; use --log FILE instead")
        command = [program, "--output=json", "--all", "--no-pager", f"--unit={self._unit.name}"]
        command += ["--follow", "--no-tail"] if follow else []
        command += [f"--after-cursor={self._start.cursor}"] if self._start else []
        self._errors, self._rest = tempfile.TemporaryFile(), b""  # noqa: SIM115 - closed with journalctl
        self._is_skipping = False
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )
        if follow and self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)
        return self._process

    def _skip_rest(self) -> None:
        """Forget what was read of an entry that is too long, and skip what follows of it."""
        if not self._is_skipping:
            logger.warning("an entry is too long; skipped", unit=self._unit.name, limit=_MAX_ENTRY)
        self._rest, self._is_skipping = b"", True

    def _end(self, process: subprocess.Popen[bytes], final: bool) -> None:
        """Close a journalctl that has ended; the next one continues after it.

        Raises InvalidInput if it failed before its first entry. A later failure is only logged, and so is that of one
        that was killed while it followed the journal.
        """
        code = process.wait()
        self._errors.seek(0)
        message = " ".join(self._errors.read().decode("utf-8", "replace").split())
        has_read, self._has_read = self._has_read, False
        self.close()
        if code and (has_read or (code < 0 and not final)):
            logger.warning("journalctl failed; continuing", unit=self._unit.name, exit_code=code, reason=message)
        elif code:
            raise InvalidInput(
                f"{self._unit}: journalctl failed with exit code {code}: {message or 'no error message'};"
                " check that you may read the journal, and use --from-start if its cursor is lost"
            )

    def _lines_of(self, entry: bytes) -> Iterator[Line]:
        fields = None
        with contextlib.suppress(ValueError):
            fields = json.loads(entry)
        if not isinstance(fields, dict) or not isinstance(fields.get("__CURSOR"), str):
            return
        cursor, self._has_read = fields["__CURSOR"], True
        host, name, pid = (_text(fields.get(key)) for key in ("_HOSTNAME", "SYSLOG_IDENTIFIER", "_PID"))
        process = f"{name or _text(fields.get('_COMM')) or '-'}[{pid}]" if pid else name
        before = f"{host} {process}: ".lstrip()
        for number, text in enumerate(_text(fields.get("MESSAGE")).splitlines()):
            yield Line((before + text)[:MAX_LINE], f"journal-{_digest(cursor)}", number)
        self._position = JournalPosition(cursor)


def _text(value: Any) -> str:
    """Return a field as text: journalctl writes bytes that are not UTF-8 as numbers, and a field twice as a list."""
    if isinstance(value, list) and all(isinstance(each, int) for each in value):
        return bytes(each & 0xFF for each in value).decode("utf-8", "replace")
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    return value if isinstance(value, str) else ""


def _digest(cursor: str) -> str:
    """Return the part of a cursor that identifies an entry in any journal file."""
    parts = dict(part.partition("=")[::2] for part in cursor.split(";"))
    stable = ";".join(f"{key}={parts[key]}" for key in _STABLE if key in parts) or cursor
    return hashlib.sha256(stable.encode()).hexdigest()[:16]
