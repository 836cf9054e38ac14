"""Errors of the archive."""

from __future__ import annotations

from scratchbus.errors.base import ScratchbusError
from scratchbus.errors.state import Conflict


class ArchiveError(ScratchbusError):
    """The archive failed."""


class ArchiveDamaged(ArchiveError):
    """A file of the archive is missing or has changed."""


class ArchiveForeign(ArchiveError):
    """The archive belongs to another bus, or to another log of this bus."""


class ArchiveUnavailable(ArchiveError):
    """The archive cannot be read or written: it is missing, no permission, no space, no response."""


class ArchiveBusy(Conflict):
    """Another archiver is archiving this log."""

    def __init__(self, shard: int, who: str) -> None:
        super().__init__(
            f"shard {shard}: {who} is archiving it, or was a few seconds ago; wait, or stop that archiver first"
        )
        self.shard = shard
        self.who = who
