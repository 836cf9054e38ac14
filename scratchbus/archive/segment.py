"""Segments and their indexes as files: building them from entries of the log, and reading them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from itertools import groupby
from secrets import token_hex
from typing import NamedTuple

from pydantic import TypeAdapter
from pydantic_core import to_json
from typing_extensions import TypedDict

from scratchbus.archive.blocks import LEVEL, MAX_UNPACKED, BlockPacker, Packed
from scratchbus.archive.lines import Line, Lines, encode_entries
from scratchbus.archive.manifest import FORMAT, Chain, EventRef, Manifest, SegmentFiles, StoredFile
from scratchbus.eventlog.compression import decompress, zstd
from scratchbus.eventlog.raw_entries import RawEntry, entry_id, text_of, texts_of

MAX_BYTES = 32 * 1024 * 1024
"""A segment with this many bytes of lines is full; it ends with its current batch."""


class _Parsed(TypedDict):
    pages: dict[str, list[int]]
    subjects: dict[str, dict[str, int]]


_INDEX = TypeAdapter(_Parsed)
_Positions = dict[bytes, tuple[list[int], dict[bytes, int]]]
"""By page: the numbers of its events, and the number of the last event about each subject."""


class Index(NamedTuple):
    """The index of a segment: by page, the numbers of its events, and of the last event about each subject."""

    pages: dict[str, list[int]]
    subjects: dict[str, dict[str, int]]

    def encode(self) -> bytes:
        """Return the index as compressed JSON."""
        return zstd.compress(to_json(self._asdict()), level=LEVEL)

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


def _index(positions: _Positions) -> Index:
    pages = {text_of(page): seqs for page, (seqs, _) in positions.items()}
    subjects = {
        text_of(page): dict(zip(texts_of([*lasts]), lasts.values(), strict=True))
        for page, (_, lasts) in positions.items()
    }
    return Index(pages, subjects)


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
        self._positions: _Positions = defaultdict(lambda: ([], {}))

    def add(self, entries: Sequence[RawEntry]) -> None:
        """Add the next entries."""
        lines = encode_entries(entries)
        _add_to_index(self._positions, lines)
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
        index = _index(self._positions)  # while the last blocks are compressed
        return Segment.of(chain, self.lines, self._packer.finish(), index, self._erased)


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
    positions: _Positions = defaultdict(lambda: ([], {}))
    _add_to_index(positions, Lines.of(lines))
    return _index(positions)


def _add_to_index(positions: _Positions, lines: Lines) -> None:
    at = 0
    for page, group in groupby(lines.pages):
        end = at + len([*group])
        if page:
            seqs, lasts = positions[page]
            seqs += lines.seqs[at:end]
            lasts.update(zip(lines.subjects[at:end], lines.seqs[at:end], strict=True))
        at = end
