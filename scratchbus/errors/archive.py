"""What is raised when the archive of a log cannot do its part."""

from __future__ import annotations

from scratchbus.errors.base import ScratchbusError
from scratchbus.errors.state import Conflict


class ArchiveError(ScratchbusError):
    """The archive cannot do its part."""


class ArchiveDamaged(ArchiveError):
    """A file of the archive is missing, or is not what was put there."""


class ArchiveForeign(ArchiveError):
    """The archive is that of another bus, or of another log of this bus."""


class ArchiveUnavailable(ArchiveError):
    """The place where the archive is cannot be read or written: not there, no permission, no space, no answer."""


class ArchiveBusy(Conflict):
    """Another archiver is at work on this log."""

    def __init__(self, shard: int, who: str) -> None:
        super().__init__(
            f"shard {shard}: {who} is archiving it, or was within the last seconds; wait, or end that archiver first"
        )
        self.shard = shard
        self.who = who
