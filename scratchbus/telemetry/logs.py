"""Logging from inside the library: to stderr, also if the program has not configured structlog."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any

LINES_AT_ONCE = 8
LINES_SECONDS = 10.0
"""A limited logger logs so many lines of one event in so many seconds, and counts further ones."""

_preparations: list[Callable[[], None]] = []


class Stderr:
    """Writes rendered lines to stderr; structlog's default is stdout, which belongs to the program.

    A line that cannot be written is lost: stderr may be closed, a broken pipe, or a file on a full disk, and what logs
    must go on with its work.
    """

    def msg(self, message: str) -> None:
        """Write a line, if that is possible."""
        with suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.write(message + "\n")

    debug = info = warning = error = critical = exception = msg


class _Logger:
    """Imports structlog at the first line only: the import takes as long as many commands, which log nothing."""

    @cached_property
    def _logger(self) -> Any:
        import structlog

        while _preparations:
            _preparations.pop()()
        return structlog.wrap_logger(Stderr())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


def before_logging(prepare: Callable[[], None]) -> None:
    """Call a function before the library logs its next line, if it does."""
    if "structlog" in sys.modules:
        prepare()
    else:
        _preparations.append(prepare)


def stderr_logger() -> Any:
    """Return a structlog logger that writes to stderr, in the form that the program configures."""
    return _Logger()


class LimitedLogger:
    """Logs what clients could cause without end: of each event, only the first lines in a time."""

    def __init__(self, logger: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}  # by event: when its time began, and its lines since then

    def warning(self, event: str, **fields: Any) -> None:
        """Log a warning, unless this event had too many lines."""
        self._log(self._logger.warning, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an error, unless this event had too many lines."""
        self._log(self._logger.error, event, fields)

    def _log(self, log: Callable[..., None], event: str, fields: dict[str, Any]) -> None:
        """Log a line, or leave it out; the first one of the next time says how many were left out."""
        now = self._clock()
        since, count = self._counts.get(event, (now, 0))
        if now - since >= LINES_SECONDS:
            if count > LINES_AT_ONCE:
                fields["left_out"] = count - LINES_AT_ONCE
            since, count = now, 0
        self._counts[event] = since, count + 1
        if count < LINES_AT_ONCE:
            log(event, **fields)
