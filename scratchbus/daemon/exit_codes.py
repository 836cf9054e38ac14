"""The exit code of each error."""

from __future__ import annotations

from scratchbus.errors import (
    ArchiveUnavailable,
    Conflict,
    EngineError,
    FilesUnavailable,
    InvalidInput,
    LogBlocked,
    LogRewound,
    NotFound,
)

OK = 0
INTERNAL = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
INVALID_INPUT = 5
ENGINE = 6
INTERRUPTED = 130  # after Ctrl-C, the exit code that shells give it

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (InvalidInput, INVALID_INPUT),
    (LogBlocked, CONFLICT),
    (LogRewound, CONFLICT),  # read the log again, as after any conflict
    (EngineError, ENGINE),
    (ArchiveUnavailable, ENGINE),
    (FilesUnavailable, ENGINE),
)


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error by its class in the table, else INTERNAL."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)
