"""Segments and their indexes as files: building them from entries of the log, and reading them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import groupby
from secrets import token_hex
from typing import NamedTuple

import msgspec
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from scratchbus.archive.blocks import LEVEL, MAX_UNPACKED, BlockPacker, Packed
from scratchbus.archive.lines import Line, Lines, encode_entries
from scratchbus.archive.manifest import FORMAT, Chain, EventRef, Manifest, SegmentFiles, StoredFile
from scratchbus.eventlog.compression import decompress, zstd
from scratchbus.eventlog.raw_entries import RawEntry, entry_id, texts_of

MAX_BYTES = 32 * 1024 * 1024
"""A segment with this many bytes of lines is full; it ends with its current batch."""


class _Parsed(TypedDict):
    pages: dict[str, list[int]]
    subjects: dict[str, dict[str, int]]


_INDEX = TypeAdapter(_Parsed)


class Index(NamedTuple):
    """The index of a segment: by page, the numbers of its events, and of the last event about each subject."""

    pages: dict[str, list[int]]
    subjects: dict[str, dict[str, int]]

    def add(self, lines: Lines) -> None:
        """Add the next events, without erased ones, which have no page."""
        subjects, at = texts_of(lines.subjects), 0
        for page, group in groupby(texts_of(lines.pages)):
            end = at + len([*group])
            if page:
                seqs = lines.seqs[at:end]
                self.pages.setdefault(page, []).extend(seqs)
                self.subjects.setdefault(page, {}).update(zip(subjects[at:end], seqs, strict=True))
            at = end

    def encode(self) -> bytes:
        """Return the index as compressed JSON."""
        return zstd.compress(msgspec.json.encode(self._asdict()), level=LEVEL)

    @classmethod
    def parse(cls, content: bytes) -> Index:
        """Return the index with this content. Raises ValueError."""
        parsed = _INDEX.validate_json(decompress(content, MAX_UNPACKED), strict=True)
        return cls(parsed["pages"], parsed["subjects"])

    def is_within(self, first: int, last: int) -> bool:
        """Return whether all its events are within these numbers, and those of each page in order."""
        lists = self.pages.values()
        if any(not seqs or seqs[0] < first or seqs[-1] > last or seqs != sorted(seqs) for seqs in lists):
            return False
        return all(first <= seq <= last for lasts in self.subjects.values() for seq in lasts.values())


class SegmentBuilder:
    """Builds a segment. Blocks are compressed while the next entries are read and encoded."""

    def __init__(self) -> None:
        self._packer = BlockPacker()
        self.bytes = 0
        self.is_closed = False
        self._erased: list[int] = []
        self.lines: list[bytes] = []
        self._ends: list[RawEntry] = []
        self._digest = sha256()
        self._index = Index({}, {})

    def add(self, entries: Sequence[RawEntry]) -> None:
        """Add the next entries."""
        lines = encode_entries(entries)
        self._index.add(lines)
        size = sum(map(len, lines.texts)) + len(lines.texts)
        self._packer.add(lines.texts, size)
        self.lines += lines.texts
        self.bytes += size
        self._erased += [int(id.rpartition(b"-")[2]) for id, flat in entries if not flat]
        self._digest.update(b"".join(lines.hashes))
        self._ends = [self._ends[0] if self._ends else entries[0], entries[-1]]

    @property
    def first(self) -> RawEntry:
        """The first entry."""
        return self._ends[0]

    def is_full(self, most_events: int) -> bool:
        """Return whether it has `most_events` events or MAX_BYTES bytes, or lacks room for the next batch."""
        return self.is_closed or len(self.lines) >= most_events or self.bytes >= MAX_BYTES

    def finish(self, bus: str, shard: int, origin: str, before: Manifest | None) -> Segment:
        """Return the segment, with file names that no other attempt at the same events uses."""
        first, last = map(_ref_of, self._ends)
        chain = Chain(
            format=FORMAT,
            bus=bus,
            shard=shard,
            origin=origin,
            first=first,
            last=last,
            count=len(self.lines),
            events=self._digest.hexdigest(),
            previous=before.name if before else None,
            previous_sha256=before.chain.sha256 if before else None,
        )
        return Segment.of(chain, self.lines, self._packer.finish(), self._index, self._erased)


class Segment(NamedTuple):
    """A segment with its index and manifest, ready to be stored; `contents` are the files that the manifest names."""

    manifest: Manifest
    contents: list[tuple[StoredFile, bytes]]
    lines: list[bytes]
    event_index: Index

    @classmethod
    def of(cls, chain: Chain, lines: list[bytes], packed: Packed, index: Index, erased: list[int]) -> Segment:
        """Return the segment of these lines, given plain and packed, with file names that no other attempt uses."""
        stem = f"{chain.first.seq:016d}-{chain.last.seq:016d}.{token_hex(4)}"
        files_of = {f"{stem}.jsonl.zst": packed.content, f"{stem}.index.json.zst": index.encode()}
        contents = [(StoredFile.of(name, content), content) for name, content in files_of.items()]
        files = SegmentFiles(segment=contents[0][0], index=contents[1][0], erased=erased, blocks=packed.blocks)
        return cls(Manifest(chain, files), contents, lines, index)


def _ref_of(entry: RawEntry) -> EventRef:
    return EventRef(at=entry[0].decode(), id=entry_id(entry))


def index_of(lines: Sequence[Line]) -> Index:
    """Return the index of these lines, without erased events."""
    index = Index({}, {})
    index.add(Lines.of(lines))
    return index
