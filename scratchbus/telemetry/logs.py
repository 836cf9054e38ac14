"""Logging from inside the library: to stderr, also where nobody has configured structlog."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

_waiting: list[Callable[[], None]] = []


class _Stderr:
    """Writes finished lines; structlog's own default would write to stdout, which belongs to the program."""

    def msg(self, message: str) -> None:
        sys.stderr.write(message + "\n")

    debug = info = warning = error = critical = exception = msg


class _Logger:
    """Loads structlog when there is something to say: that takes as long as many a command, which says nothing."""

    @cached_property
    def _logger(self) -> Any:
        import structlog

        while _waiting:
            _waiting.pop()()
        return structlog.wrap_logger(_Stderr())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


def before_logging(prepare: Callable[[], None]) -> None:
    """Have something done before the next line is logged from inside the library, and only if there is one."""
    if "structlog" in sys.modules:
        prepare()
    else:
        _waiting.append(prepare)


def stderr_logger() -> Any:
    """Return a structlog logger that is rendered as the program configures structlog, and goes to stderr."""
    return _Logger()
