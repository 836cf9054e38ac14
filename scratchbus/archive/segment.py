"""Segments and their indexes as files: made from entries of the log, and read again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from secrets import token_hex
from typing import NamedTuple

from backports import zstd
from pydantic import TypeAdapter
from pydantic_core import to_json
from typing_extensions import TypedDict

from scratchbus.archive.lines import Line, encode_entries
from scratchbus.archive.manifest import FORMAT, Chain, Files, Manifest, Place, StoredFile
from scratchbus.eventlog.codec import RawEntry, entry_id, text_of
from scratchbus.eventlog.unzip import unzip

LEVEL = 3
"""How hard zstd compresses."""

MOST_BYTES = 32 * 1024 * 1024
"""The bytes of lines after which a segment ends, with the batch it is at."""


MOST_UNPACKED = 4 * MOST_BYTES
"""The most bytes that a segment or an index may unpack to: a segment ends with the batch at which it is full."""

_SHORTEST = 20  # bytes of a line


class _Parsed(TypedDict):
    pages: dict[str, list[int]]
    subjects: dict[str, dict[str, int]]


_INDEX = TypeAdapter(_Parsed)
_Places = dict[bytes, tuple[list[int], dict[bytes, int]]]
"""By page: the numbers of its events, and that of the last one about each subject."""


class Index(NamedTuple):
    """Where a segment has what: the numbers of a page's events, and the last one of each of its subjects'."""

    pages: dict[str, list[int]]
    subjects: dict[str, dict[str, int]]

    def encode(self) -> bytes:
        """Return it compressed."""
        return zstd.compress(to_json(self._asdict()), level=LEVEL)

    @classmethod
    def parse(cls, content: bytes) -> Index:
        """Read it. Raises ValueError."""
        parsed = _INDEX.validate_json(unzip(content, MOST_UNPACKED), strict=True)
        return cls(parsed["pages"], parsed["subjects"])

    def is_within(self, first: int, last: int) -> bool:
        """Say whether all events it names are among these, and those of each page in order."""
        lists = self.pages.values()
        if any(not seqs or seqs[0] < first or seqs[-1] > last or seqs != sorted(seqs) for seqs in lists):
            return False
        return all(first <= seq <= last for lasts in self.subjects.values() for seq in lasts.values())


def _index(places: _Places) -> Index:
    pages = {text_of(page): seqs for page, (seqs, _) in places.items()}
    subjects = {
        text_of(page): {text_of(subject): seq for subject, seq in lasts.items()} for page, (_, lasts) in places.items()
    }
    return Index(pages, subjects)


class Draft:
    """A segment in the making."""

    def __init__(self) -> None:
        self.bytes = 0
        self.is_closed = False
        self._erased: list[int] = []
        self.lines: list[bytes] = []
        self._ends: list[RawEntry] = []
        self._digest = sha256()
        self._places: _Places = defaultdict(lambda: ([], {}))

    def add(self, entries: Sequence[RawEntry]) -> None:
        """Take in the next entries."""
        places, hashes = self._places, []
        for text, hash, seq, page, subject in encode_entries(entries):
            self.lines.append(text)
            hashes.append(hash)
            if page:
                seqs, lasts = places[page]
                seqs.append(seq)
                lasts[subject] = seq
            self.bytes += len(text)
        self._erased += [int(id.rpartition(b"-")[2]) for id, flat in entries if not flat]
        self._digest.update(b"".join(hashes))
        self._ends = [self._ends[0] if self._ends else entries[0], entries[-1]]

    @property
    def first(self) -> RawEntry:
        """The first entry in it."""
        return self._ends[0]

    def is_full(self, most: int) -> bool:
        """Say whether it may not have more than so many events, or no more bytes, or the next batch is too long."""
        return self.is_closed or len(self.lines) >= most or self.bytes >= MOST_BYTES

    def finish(self, bus: str, shard: int, origin: str, before: Manifest | None) -> Segment:
        """Return the files, with names that no other attempt at the same events has."""
        first, last = map(_place, self._ends)
        stem = f"{first.seq:016d}-{last.seq:016d}.{token_hex(4)}"
        index = _index(self._places)
        text, places = pack(self.lines), index.encode()
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
        files = Files(
            segment=StoredFile.of(f"{stem}.jsonl.zst", text),
            index=StoredFile.of(f"{stem}.index.json.zst", places),
            erased=self._erased,
        )
        return Segment(Manifest(chain, files), text, places, self.lines, index)


class Segment(NamedTuple):
    """A segment with its index and manifest, ready to be stored, and what is in them."""

    manifest: Manifest
    content: bytes
    places: bytes
    lines: list[bytes]
    where: Index


def _place(entry: RawEntry) -> Place:
    return Place(at=entry[0].decode(), id=entry_id(entry))


def pack(lines: Sequence[bytes]) -> bytes:
    """Return lines as a segment's file."""
    return zstd.compress(b"\n".join(lines) + b"\n", level=LEVEL)


def unpack(content: bytes) -> list[bytes]:
    """Return the lines of a segment's file. Raises ValueError."""
    text = unzip(content, MOST_UNPACKED)
    if not text.endswith(b"\n"):
        raise ValueError("its last line has no end")
    if text.count(b"\n") > len(text) // _SHORTEST:
        raise ValueError("its lines are too short for events")
    return text[:-1].split(b"\n")


def index_of(lines: Sequence[Line]) -> Index:
    """Return the index of these lines; what was erased, or is on no page, is not in it."""
    places: _Places = defaultdict(lambda: ([], {}))
    for _, _, seq, page, subject in lines:
        if page:
            seqs, lasts = places[page]
            seqs.append(seq)
            lasts[subject] = seq
    return _index(places)
