"""The protocol of an archive, by which readers of a trimmed log use it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from scratchbus.domain.position import Position
from scratchbus.errors import ArchiveDamaged, ArchiveForeign, PositionLost
from scratchbus.eventlog.raw_entries import RawEntry

EVENTS_LOST = (PositionLost, ArchiveDamaged, ArchiveForeign)
"""The errors that keep archived events from being read until someone sets or repairs the archive."""


class EntryChunk(NamedTuple):
    """Some entries, and the position up to which a reader is done; more may precede it."""

    entries: list[RawEntry]
    at: Position
    event_id: str


class Fault(NamedTuple):
    """A fault in a file of an archive, or between two files.

    `is_leftover` is that no manifest names the file, `is_unreadable` that it cannot be read, though others can.
    """

    where: str
    what: str
    is_leftover: bool = False
    is_unreadable: bool = False


class Checked(NamedTuple):
    """How many events were checked since the beginning, and the faults found with the last of them."""

    events: int
    faults: list[Fault]


class LogArchive(Protocol):
    """An archive as readers use it; every call may be slow.

    `origin` is the log's origin; each method raises ArchiveForeign if the archive belongs to another log.
    ArchiveDamaged and ArchiveUnavailable say why something could not be read: nothing is ever skipped silently.
    `where` is the archive's location, for messages.
    """

    where: str

    def after(
        self, shard: int, origin: str, after: Position, until: Position, limit: int, page: str = ""
    ) -> EntryChunk:
        """Return the next entries after a position, of one page or of all, up to another position."""
        ...

    def at(self, shard: int, origin: str, positions: Sequence[Position]) -> list[RawEntry]:
        """Return the entries at these positions, without erased ones."""
        ...

    def back(self, shard: int, origin: str, ends: Sequence[Position], limit: int) -> list[tuple[list[RawEntry], str]]:
        """Return up to so many entries of a subject back from each of these positions.

        They are newest first, each list with the stream id to continue at, or "".
        """
        ...

    def erase(self, shard: int, origin: str, seqs: Sequence[int], times: Mapping[int, int] = ...) -> Iterator[None]:
        """Erase the archived events among these numbers; yield before each step, for the caller to renew the lease.

        An event with another time than `times` (ms, by number) says stays.
        """
        ...

    def table(self, shard: int, sha256: str) -> bytes:
        """Return a table of the index of paged-out observations. Raises ArchiveDamaged if it is missing or changed."""
        ...

    def put_table(self, shard: int, content: bytes) -> str:
        """Store a table of the index of paged-out observations; return its SHA-256.

        Raises ArchiveDamaged unless it reads back unchanged.
        """
        ...

    def check(self, shard: int, origin: str, until: Position, erased: Collection[int]) -> Iterator[Checked]:
        """Check the whole archive, some events at a time; it must have everything up to a position, unchanged.

        Of the events with the numbers `erased` only the hash may be left. Faults are returned, not raised.
        """
        ...

    def location(self, shard: int) -> str:
        """Return where the archive of a shard's log is, as the engine records it."""
        ...

    def last_of(self, shard: int, origin: str, page: str, subject: str) -> Position | None:
        """Return the position of the last archived event about a subject."""
        ...

    def pages_of(self, shard: int, origin: str, subjects: Collection[str]) -> dict[str, str]:
        """Return the page of each of these subjects that has archived events, by subject."""
        ...

    def last_until(self, shard: int, origin: str, ms: int) -> Position:
        """Return the position of the last archived event at or before a time (ms), START if there is none."""
        ...

    def reaches(self, shard: int, origin: str, position: Position) -> bool:
        """Return whether the archive has a segment that ends at or after a position."""
        ...
