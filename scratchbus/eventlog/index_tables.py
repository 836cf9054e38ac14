"""The index of paged-out observations as it is stored: in the engine, and in tables of the archive.

An entry has 24 bytes by id, and 32 by when the observation was added. When a page has many entries in the engine, they
are written to the archive as one table, which never changes. The hash `tables` of the page has the number of each
table, and what its entries range over; `kept` counts those in the engine.

Of an observation's entries the latest holds: that in the engine, else that in the newest table. An entry without a
`seq` says that the observation was paged in again.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from typing import NamedTuple

from scratchbus.domain.observation import Observation
from scratchbus.engine.steps import Step
from scratchbus.errors import ArchiveDamaged
from scratchbus.eventlog.archive_protocol import LogArchive
from scratchbus.eventlog.below_floor import from_archive
from scratchbus.eventlog.bus_log import Log
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    import ulid

    from scratchbus.eventlog import compression

BUCKETS, RANGE = 4_096, 1_024
ULID_LENGTH = 26
"""How many characters a ULID has, of five bits each."""

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_AS_BASE_32 = str.maketrans("ABCDEFGHJKMNPQRSTVWXYZ", "abcdefghijklmnopqrstuv")  # a tenth of the time of `ulid`

ID, ENTRY = struct.Struct(">16sQ"), struct.Struct(">QQQQ")

MAX_LOADED = 8
"""The tables that a process keeps in memory, about a megabyte each."""

_COUNT = struct.Struct(">Q")
_MAX_BYTES = 1 << 30


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


class TableName(NamedTuple):
    """A table: its number, its SHA-256, and the least and the greatest id and `added` of its entries."""

    number: int
    sha256: str
    first_id: bytes
    last_id: bytes
    first: int
    last: int

    @classmethod
    def parse(cls, field: bytes, value: bytes) -> TableName:
        """Read the stored form."""
        sha256, first_id, last_id, first, last = value.decode().split()
        return cls(int(field), sha256, bytes.fromhex(first_id), bytes.fromhex(last_id), int(first), int(last))

    def __str__(self) -> str:
        return f"{self.sha256} {self.first_id.hex()} {self.last_id.hex()} {self.first} {self.last}"

    def may_have(self, id: bytes) -> bool:
        """Return whether an id is in the range of the table's ids."""
        return self.first_id <= id <= self.last_id

    def spans(self, added: int) -> bool:
        """Return whether a `seq` is in the range of the table's entries."""
        return self.first <= added <= self.last


def table_names(flat: Sequence[bytes]) -> list[TableName]:
    """Return the tables that the hash `tables` of a page names, newest first."""
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return sorted((TableName.parse(*pair) for pair in pairs if pair[0].isdigit()), reverse=True)


class Table:
    """The entries of a table: ids in order, each with its `added`, and index entries in the order of `added`."""

    __slots__ = ("_entries", "_ids")

    def __init__(self, content: bytes) -> None:
        """Unpack a table as it is stored. Raises ValueError."""
        raw = compression.decompress(content, _MAX_BYTES)
        (count,) = _COUNT.unpack_from(raw)
        middle = _COUNT.size + ID.size * count
        if middle > len(raw) or (len(raw) - middle) % ENTRY.size:
            raise ValueError("it is cut short")
        self._ids, self._entries = raw[_COUNT.size : middle], raw[middle:]

    def find(self, id: bytes) -> int | None:
        """Return when an observation was added; None if the table does not have its id."""
        ids = self._ids
        at = bisect_left(range(len(ids) // ID.size), id, key=lambda n: ids[n * ID.size : n * ID.size + 16]) * ID.size
        if ids[at : at + 16] != id:
            return None
        added: int = ID.unpack_from(ids, at)[1]
        return added

    def entry(self, added: int) -> PagedOut | None:
        """Return the entry for the observation that was added at this `seq`."""
        at = self._offset(added)
        entry = PagedOut(*ENTRY.unpack_from(self._entries, at)) if at < len(self._entries) else None
        return entry if entry is not None and entry.added == added else None

    def entries(self, low: int, high: int) -> Iterator[PagedOut]:
        """Yield the entries with an `added` from one `seq` on and below another."""
        for each in ENTRY.iter_unpack(self._entries[self._offset(low) : self._offset(high)]):
            yield PagedOut(*each)

    def ids(self) -> Iterator[bytes]:
        """Yield the ids of all entries."""
        for id, _ in ID.iter_unpack(self._ids):
            yield id

    def ranges(self) -> set[int]:
        """Return the numbers of the ranges that have entries."""
        return {added // RANGE for added, *_ in ENTRY.iter_unpack(self._entries)}

    def _offset(self, added: int) -> int:
        """Return where the entries from this `seq` on begin."""
        entries, size = self._entries, ENTRY.size
        return (
            bisect_left(range(len(entries) // size), added, key=lambda n: _COUNT.unpack_from(entries, n * size)[0])
            * size
        )


def pack_table(ids: Mapping[bytes, int], entries: Mapping[int, PagedOut]) -> bytes:
    """Return entries as a table: the `added` of each id, and the entry for each `added`."""
    rows = b"".join(ID.pack(*each) for each in sorted(ids.items()))
    rows_by_added = b"".join(ENTRY.pack(*each) for _, each in sorted(entries.items()))
    content = _COUNT.pack(len(ids)) + rows + rows_by_added
    return compression.zstd.compress(content, options={compression.zstd.CompressionParameter.checksum_flag: 1})


def name_table(
    others: Sequence[TableName], sha256: str, ids: Mapping[bytes, int], entries: Mapping[int, PagedOut]
) -> TableName:
    """Return the name of a new table with these entries, beside the others of its page."""
    number = 1 + max((each.number for each in others), default=0)
    return TableName(number, sha256, min(ids), max(ids), min(entries), max(entries))


def _read_table(shard: int, sha256: str, archive: LogArchive) -> Table:
    try:
        return Table(archive.table(shard, sha256))
    except (ValueError, struct.error) as problem:
        raise ArchiveDamaged(f"{archive.where}: the index table {sha256} cannot be read: {problem}") from None


def load_table(log: Log, shard: int, name: TableName) -> Step[Table]:
    """Return a table. Raises PositionLost if no archive is set, ArchiveDamaged if the table is missing or changed."""
    loaded = log.tables.pop(name.sha256, None)
    if loaded is None:
        what = "the index of paged-out observations"
        loaded = yield from from_archive(log, shard, what, partial(_read_table, shard, name.sha256))
    log.tables[name.sha256] = loaded
    while len(log.tables) > MAX_LOADED:
        log.tables.pop(next(iter(log.tables)), None)
    return loaded


def find_in_tables(log: Log, shard: int, names: Sequence[TableName], ids: Iterable[str]) -> Step[dict[str, PagedOut]]:
    """Return the latest entries that these tables, newest first, have for observations, by id."""
    found: dict[str, PagedOut] = {}
    for id in ids:
        key = bytes_of(id)
        for at, name in enumerate(names):
            if not key or not name.may_have(key):
                continue
            table = yield from load_table(log, shard, name)
            if (added := table.find(key)) is None:
                continue
            entry = table.entry(added)
            for newer in names[:at]:
                if newer.spans(added):
                    newer_entry = (yield from load_table(log, shard, newer)).entry(added)
                    if newer_entry is not None:
                        entry = newer_entry
                        break
            if entry is not None:
                found[id] = entry
            break
    return found


def ids_like(log: Log, shard: int, names: Sequence[TableName], text: str) -> Step[set[str]]:
    """Return the ids in these tables that end or begin with a text: its bits are the last or the first ones."""
    value, bits = int(text.translate(_AS_BASE_32), 32), 5 * len(text)
    mask, shift = (1 << bits) - 1, 5 * ULID_LENGTH - bits
    found: set[str] = set()
    for name in names:
        table = yield from load_table(log, shard, name)
        for id in table.ids():
            number = int.from_bytes(id)
            if number & mask == value or number >> shift == value:
                found.add(id_text(id))
    return found
