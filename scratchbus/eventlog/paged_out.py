"""The index of paged-out observations: the position of each one's last event, from which its document is folded.

Two hashes per page. `paged`: bucket of the id -> the ids in it (16 bytes each) with the `seq` of the event that added
each. `places`: range of that `seq` -> the position of each last event, and the observation's traits, by which a list
skips most of those that it does not want. About 56 bytes each, plus the engine's overhead. In `places`, `=<status>`
says that some may have this status, and `moves` is another word each time something is paged in again.

Every change moves the checkpoint, so a reader of both knows whether its data is still valid.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Step, ask_all
from scratchbus.errors import PositionLost
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.chains import walk_chains
from scratchbus.eventlog.gaps import not_erased
from scratchbus.eventlog.keys import PageKeys
from scratchbus.projections.table import IN_PLACE
from scratchbus.telemetry.late import late

if TYPE_CHECKING:
    import ulid

else:
    ulid = late("ulid")

BUCKETS, RANGE = 4_096, 1_024
_ID, _PLACE = struct.Struct(">16sQ"), struct.Struct(">QQQQ")
_AT_ONCE = 500


class PagedOut(NamedTuple):
    """A paged-out observation: when it was added, the position of its last event, and its traits."""

    added: int
    ms: int
    seq: int
    traits: int

    @property
    def stream_id(self) -> str:
        """The stream id of its last event."""
        return f"{self.ms}-{self.seq}"

    @classmethod
    def of(cls, document: Observation) -> PagedOut:
        """Return the index entry for an observation that is to be paged out."""
        return cls(document.added_seq, document.ms, document.seq, traits_of(document))


@lru_cache(maxsize=4_096)
def trait(name: str, value: str) -> int:
    """Return three of 64 bits that represent a field with this value."""
    number = int.from_bytes(blake2b(f"{name}\0{value}".encode(), digest_size=4).digest())
    return 1 << (number & 63) | 1 << (number >> 6 & 63) | 1 << (number >> 12 & 63)


def traits_of(document: Observation) -> int:
    """Return the bits for all values that a list can filter by."""
    bits = trait("type", document.type) | trait("source", document.source) | trait("status", document.status)
    for tag in document.tags:
        bits |= trait("tag", tag)
    return bits | trait("owner", document.owner) if document.owner is not None else bits


@lru_cache(maxsize=4_096)
def _bytes_of(id: str) -> bytes:
    """Return an id as stored in buckets; nothing for a subject that is not an observation."""
    try:
        return ulid.ULID.from_str(id).bytes
    except ValueError:
        return b""


def bucket_of(id: str) -> str:
    """Return the field of `paged` that an id is in."""
    return str(int.from_bytes(_bytes_of(id)[-2:]) % BUCKETS)


def range_of(added: int) -> str:
    """Return the field of `places` for observations added by the event of this `seq`."""
    return str(added // RANGE)


def ids_in(row: bytes | None) -> dict[bytes, int]:
    """Return the ids of a bucket, each with the seq at which it was added."""
    return dict(_ID.iter_unpack(row or b""))


def places_in(row: bytes | None) -> dict[int, PagedOut]:
    """Return the index entries of a range, by the seq at which they were added."""
    return {each[0]: PagedOut(*each) for each in _PLACE.iter_unpack(row or b"")}


def whole(id: bytes) -> str:
    """Return the text of an id that is stored in a bucket."""
    return str(ulid.ULID(id))


@dataclass(slots=True)
class IndexEdit:
    """Changes to the index of one page, on top of the fields they concern as they were read."""

    names: PageKeys
    buckets: dict[str, dict[bytes, int]] = field(default_factory=dict)
    ranges: dict[str, dict[int, PagedOut]] = field(default_factory=dict)
    _fields: dict[tuple[str, str], object] = field(default_factory=dict)
    _has_moves: bool = False

    def load(self, found: Iterable[tuple[Command, Sequence[bytes | None]]]) -> None:
        """Add fields as they are stored: `reads` with their replies."""
        for (_, key, *fields), rows in found:
            for name, row in zip(map(str, fields), rows, strict=True):
                if key == self.names.paged:
                    self.buckets[name] = ids_in(row)
                else:
                    self.ranges[name] = places_in(row)

    def find(self, id: str) -> PagedOut | None:
        """Return the index entry of an observation, if it is paged out."""
        added = self.buckets[bucket_of(id)].get(_bytes_of(id))
        return None if added is None else self.ranges.get(range_of(added), {}).get(added)

    def add(self, document: Observation) -> None:
        """Add an observation to the index."""
        bucket, span = bucket_of(document.id), range_of(document.added_seq)
        self.buckets[bucket][_bytes_of(document.id)] = document.added_seq
        self.ranges[span][document.added_seq] = PagedOut.of(document)
        self._touch(bucket, span)
        self._fields[self.names.places, f"={document.status}"] = 1

    def remove(self, id: str, place: PagedOut) -> None:
        """Remove an observation from the index."""
        bucket, span = bucket_of(id), range_of(place.added)
        del self.buckets[bucket][_bytes_of(id)], self.ranges[span][place.added]
        self._touch(bucket, span)
        self._has_moves = True

    def _touch(self, bucket: str, span: str) -> None:
        self._fields[self.names.paged, bucket] = self._fields[self.names.places, span] = None

    def commands(self) -> list[Command]:
        """Return the commands that store the changes."""
        writes: dict[tuple[str, str], list[object]] = defaultdict(list)
        for (key, name), value in self._fields.items():
            if value is None and key == self.names.paged:
                value = b"".join(_ID.pack(*each) for each in sorted(self.buckets[name].items()))
            elif value is None:
                value = b"".join(_PLACE.pack(*each) for _, each in sorted(self.ranges[name].items()))
            if value:
                writes["HSET", key] += (name, value)
            else:
                writes["HDEL", key].append(name)
        out: list[Command] = [("HSET", self.names.places, "moves", token_hex(6))] if self._has_moves else []
        for command, arguments in writes.items():
            out += [(*command, *arguments[at : at + 2_000]) for at in range(0, len(arguments), 2_000)]
        return out


def reads(names: PageKeys, ids: Iterable[str], added: Iterable[int]) -> list[Command]:
    """Return the reads of the fields for these ids, and for observations added at these seqs."""
    out: list[Command] = []
    for key, wanted in (
        (names.paged, {bucket_of(id) for id in ids}),
        (names.places, {range_of(each) for each in added}),
    ):
        asked = sorted(wanted)
        out += [("HMGET", key, *asked[at : at + _AT_ONCE]) for at in range(0, len(asked), _AT_ONCE)]
    return out


def read_index(names: PageKeys, shard: int, ids: Collection[str]) -> Step[IndexEdit]:
    """Return the parts of a page's index for these ids."""
    edit = IndexEdit(names)
    buckets = reads(names, ids, ())
    edit.load(zip(buckets, (yield from ask_all(shard, buckets)), strict=True))
    found = (edit.buckets[bucket_of(id)].get(_bytes_of(id)) for id in ids)
    ranges = reads(names, (), (added for added in found if added is not None))
    edit.load(zip(ranges, (yield from ask_all(shard, ranges)), strict=True))
    return edit


def locate(names: PageKeys, shard: int, ids: Collection[str]) -> Step[dict[str, PagedOut]]:
    """Return the index entries of these observations, as far as they are paged out."""
    edit = yield from read_index(names, shard, ids)
    return {id: place for id in ids if (place := edit.find(id)) is not None}


def rebuild(log: Log, shard: int, places: Sequence[PagedOut]) -> Step[list[Observation]]:
    """Fold the documents of paged-out observations from their events; leave out those erased meanwhile.

    Raises PositionLost if their events are in an archive that cannot be read.
    """
    try:
        chains = yield from walk_chains(log, shard, [place.stream_id for place in places])
    except PositionLost:
        ends = [Position(place.ms, place.seq, shard) for place in places]
        left = set((yield from not_erased(log.keys(shard), ends)))
        if len(left) == len(ends):
            raise
        kept = [place for place, end in zip(places, ends, strict=True) if end in left]
        return (yield from rebuild(log, shard, kept))
    documents = []
    for place in places:
        document: Observation | None = None
        for event in chains[place.stream_id]:
            document, _ = IN_PLACE.fold(document, event)
        if document is not None and document.added_seq == place.added:
            documents.append(document)
    return documents
