"""Logging from inside the library: to stderr, also if the program has not configured structlog."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any

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
