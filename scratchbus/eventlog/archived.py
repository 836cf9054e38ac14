"""What was trimmed from a log, as its readers see it: they read the archive in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from scratchbus.domain.position import Position
from scratchbus.eventlog.raw_entries import RawEntry


class Stretch(NamedTuple):
    """Some entries, and where a reader stands that has taken them in: there may be others before it."""

    entries: list[RawEntry]
    at: Position
    event_id: str


class Fault(NamedTuple):
    """What is wrong with a file of an archive, or between two of them."""

    where: str
    what: str


class Checked(NamedTuple):
    """How many events were checked, since the beginning, and what is wrong with the last of them."""

    events: int
    faults: list[Fault]


class Past(Protocol):
    """An archive as readers use it; each call may take its time.

    `origin` is that of the log, and each raises ArchiveForeign when the archive is of another one. ArchiveDamaged and
    ArchiveUnavailable say why something could not be read: never is anything left out in silence. `where` says where it
    is, for people.
    """

    where: str

    def after(self, shard: int, origin: str, after: Position, until: Position, limit: int, page: str = "") -> Stretch:
        """Return the next entries behind a position, of one page or of all, up to another position."""
        ...

    def at(self, shard: int, origin: str, positions: Sequence[Position]) -> list[RawEntry]:
        """Return the entries at these positions; what was erased is left out."""
        ...

    def back(self, shard: int, origin: str, at: Position, most: int) -> tuple[list[RawEntry], str]:
        """Return the entries of a subject from a position back, newest first, and the stream id to go on at, or ""."""
        ...

    def erase(self, shard: int, origin: str, seqs: Sequence[int]) -> Iterator[None]:
        """Erase the events with these numbers, as far as they are archived; yield where the lease is prolonged."""
        ...

    def check(self, shard: int, origin: str, until: Position, erased: Collection[int]) -> Iterator[Checked]:
        """Check, some events at a time, that everything up to a position is there, as it was put there.

        `erased` has the numbers of the events of which nothing may be there but the hash. What is wrong is not raised.
        """
        ...

    def last_of(self, shard: int, origin: str, page: str, subject: str) -> Position | None:
        """Return where the last archived event about a subject is."""
        ...

    def last_until(self, shard: int, origin: str, ms: int) -> Position:
        """Return where the last archived event up to a millisecond is; the start if there is none."""
        ...
