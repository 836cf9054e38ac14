"""What is raised when reading the log cannot go on as asked."""

from __future__ import annotations

from scratchbus.errors.base import ScratchbusError


class LogError(ScratchbusError):
    """Reading the log cannot go on as asked."""


class Behind(LogError):
    """A read could not catch up with the log within `fresh_timeout`, or a stale one would be older than that."""


class PositionLost(LogError):
    """The log was trimmed past the position that was asked for."""


class LogRewound(LogError):
    """The log is not the one that was read before: flushed, replaced or rewound by a failover."""


class LogGap(LogError):
    """A position is missing that no trim and no erasure explains."""


class CodeTooOld(LogError):
    """An event has a newer schema than this code knows, or the state a newer form; upgrade scratchbus."""


class StateTooOld(LogError):
    """The state is stored in a form that this code no longer reads; `scratchbus rebuild` builds it anew."""
