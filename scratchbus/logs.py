"""Logging from inside the library: to stderr, also where nobody has configured structlog."""

from __future__ import annotations

import sys
from typing import Any

import structlog


class _Stderr:
    """Writes finished lines; structlog's own default would write to stdout, which belongs to the program."""

    def msg(self, message: str) -> None:
        sys.stderr.write(message + "\n")

    debug = info = warning = error = critical = exception = msg


def stderr_logger() -> Any:
    """Return a structlog logger that is rendered as the program configures structlog, and goes to stderr."""
    return structlog.wrap_logger(_Stderr())
