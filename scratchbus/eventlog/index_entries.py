"""The entries of the index of paged-out observations, as they are stored: 24 bytes by id, 32 by when it was added."""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from scratchbus.domain.observation import Observation
from scratchbus.telemetry.lazy import lazy

if TYPE_CHECKING:
    import ulid

else:
    ulid = lazy("ulid")

BUCKETS, RANGE = 4_096, 1_024
ULID_LENGTH = 26
"""How many characters a ULID has, of five bits each."""

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_AS_BASE_32 = str.maketrans("ABCDEFGHJKMNPQRSTVWXYZ", "abcdefghijklmnopqrstuv")  # a tenth of the time of `ulid`

ID, ENTRY = struct.Struct(">16sQ"), struct.Struct(">QQQQ")


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
def bytes_of(id: str) -> bytes:
    """Return an id, of 26 capitals, as stored in buckets; nothing for a subject that is not an observation."""
    return int(id.translate(_AS_BASE_32), 32).to_bytes(16) if _ULID.fullmatch(id) else b""


def bucket_of(id: str) -> str:
    """Return the field of `paged` that an id is in."""
    return str(int.from_bytes(bytes_of(id)[-2:]) % BUCKETS)


def range_of(added: int) -> str:
    """Return the field of `places` for observations added by the event of this `seq`."""
    return str(added // RANGE)


def ids_in(row: bytes | None) -> dict[bytes, int]:
    """Return the ids of a bucket, each with the seq at which it was added."""
    return dict(ID.iter_unpack(row or b""))


def entries_in(row: bytes | None) -> dict[int, PagedOut]:
    """Return the index entries of a range, by the seq at which they were added."""
    return {each[0]: PagedOut(*each) for each in ENTRY.iter_unpack(row or b"")}


def id_text(id: bytes) -> str:
    """Return the text of an id that is stored in a bucket."""
    return str(ulid.ULID(id))
