"""Errors of the log and its archive."""

from __future__ import annotations

from scratchbus.errors.base import ScratchbusError


class LogError(ScratchbusError):
    """The log cannot be read or written as requested."""


class LogBlocked(LogError):
    """An entry that scratchbus did not write is behind the end of the log, and blocks all writes to the shard."""

    def __init__(self, shard: int, stream_id: str) -> None:
        super().__init__(
            f"shard {shard}: nothing was written, because someone else added {stream_id} to the stream behind the last"
            " event; have an admin run `scratchbus repair`, which removes it, then try again"
        )
        self.shard = shard
        self.stream_id = stream_id


class Behind(LogError):
    """A read did not catch up with the log within `fresh_timeout`, or a stale read would be older than that."""


class PositionLost(LogError):
    """The log was trimmed past the requested position."""


class LogRewound(LogError):
    """The log is not the one read before: it was flushed, replaced, or rewound by a failover."""


class LogGap(LogError):
    """A position is missing that was neither trimmed nor erased."""


class CodeTooOld(LogError):
    """An event has a newer schema than this code, or the state a newer format; upgrade scratchbus."""


class StateTooOld(LogError):
    """The state is stored in a format that this code no longer reads; run `scratchbus rebuild`."""


class ArchiveError(ScratchbusError):
    """The archive failed."""


class ArchiveDamaged(ArchiveError):
    """A file of the archive is missing or has changed."""


class ArchiveForeign(ArchiveError):
    """The archive belongs to another bus, or to another log of this bus."""


class ArchiveUnavailable(ArchiveError):
    """The archive cannot be read or written: it is missing, no permission, no space, no response."""
