"""A manifest: the contents of a segment, and the link to the segment before it.

Its `chain` never changes, and the next manifest has its SHA-256. Its `files` change when an event is erased, but the
hashes in the chain stay the same. A manifest is canonical JSON.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from scratchbus.domain.position import Position
from scratchbus.errors import shown

FORMAT = 2
"""The version of the format of segments and manifests."""

DIVIDED = 2
"""The first version in which segments are divided into blocks."""

MAX_BYTES = 64 * 1024 * 1024
"""The most bytes in a manifest, which lists the numbers of all erased events."""

MAX_SEGMENT_BYTES = 256 * 1024 * 1024
"""The most bytes in the file of a segment; more than any has, as none unpacks to half as many."""

FILES = 3
"""The number of files of a segment: the segment itself, its index and its manifest."""

END = "end.json"
"""The name of the end file, which names the last manifest, so that its loss is noticed."""

_SUFFIX = ".manifest.json"
_MANIFEST = re.compile(rf"[0-9]{{16}}{re.escape(_SUFFIX)}")
_TABLE = re.compile(r"index/([0-9a-f]{64})\.zst")
_NUMBER = re.compile(r"\.?(\d{16})[.-]")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class EventRef(_Part):
    """An event: its stream id and its own id."""

    at: str
    id: str

    @property
    def position(self) -> Position:
        """Its position, without the shard. Raises InvalidPosition."""
        return Position.parse(self.at)

    @property
    def seq(self) -> int:
        """Its number in the log."""
        return self.position.seq


class Chain(_Part):
    """The part that never changes: the events, the hash over their hashes, and the link to the previous manifest."""

    format: int
    bus: str
    shard: int
    origin: str
    first: EventRef
    last: EventRef
    count: int
    events: str
    previous: str | None
    previous_sha256: str | None

    @property
    def sha256(self) -> str:
        """The hash by which the next manifest refers to it."""
        return sha256(_canonical(self.model_dump())).hexdigest()


class StoredFile(_Part):
    """A file beside the manifest."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, name: str, content: bytes) -> Self:
        """Describe a file with this content."""
        return cls(name=name, size=len(content), sha256=sha256(content).hexdigest())


class Block(_Part):
    """A part of a segment that can be read alone: a frame of zstd with this many lines."""

    lines: int
    size: int
    sha256: str


class SegmentFiles(_Part):
    """The part that changes when events are erased: the segment, its index, and the numbers of the erased events.

    `blocks` are the blocks of the segment in their order; format 1 has none.
    """

    segment: StoredFile
    index: StoredFile
    erased: list[int] = []
    blocks: list[Block] = []


class Manifest(NamedTuple):
    """A complete manifest."""

    chain: Chain
    files: SegmentFiles

    @property
    def name(self) -> str:
        """The name of its file."""
        return manifest_name(self.chain.first.seq)

    @property
    def names(self) -> frozenset[str]:
        """The names of its own file and of the files it names."""
        return frozenset({self.name, self.files.segment.name, self.files.index.name})

    @property
    def blocks(self) -> list[Block]:
        """The blocks of the segment; a segment without any is a single one."""
        segment = self.files.segment
        return self.files.blocks or [Block(lines=self.chain.count, size=segment.size, sha256=segment.sha256)]

    @property
    def end(self) -> bytes:
        """The content of the end file while this manifest is the last one."""
        return _canonical({"last": self.name, "sha256": self.chain.sha256}) + b"\n"

    def encode(self) -> bytes:
        """Return its canonical form."""
        files = self.files.model_dump(exclude=None if self.files.blocks else {"blocks"})
        parts = {"chain": self.chain.model_dump(), "files": files}
        return _canonical({**parts, "sha256": sha256(_canonical(parts)).hexdigest()}) + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> Manifest:
        """Return the manifest in a file. Raises ValueError unless the content is canonical and consistent."""
        if len(content) > MAX_BYTES:
            raise ValueError(f"it has {len(content):,} bytes; no manifest has more than {MAX_BYTES:,}")
        try:
            parsed = json.loads(content)
            chain, files = parsed["chain"], parsed["files"]
            format = chain["format"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError("it is not a manifest") from None
        if isinstance(format, int) and format > FORMAT:  # before the other fields, which may be new
            raise ValueError(f"its format is {format}; this version reads up to {FORMAT}: upgrade scratchbus")
        try:
            manifest = cls(Chain.model_validate(chain), SegmentFiles.model_validate(files))
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None
        if manifest.encode() != content:
            raise ValueError("its text is not canonical or does not match its hash: it was changed")
        manifest._check()
        return manifest

    def _check(self) -> None:
        """Raise ValueError unless it is consistent and names files of its own folder."""
        chain, files = self.chain, self.files
        if chain.count != chain.last.seq - chain.first.seq + 1 or chain.count < 1 or chain.first.seq < 1:
            raise ValueError(f"it says that there are {chain.count:,} events from {chain.first.at} to {chain.last.at}")
        if files.segment.size > MAX_SEGMENT_BYTES:
            raise ValueError(
                f"it says that its segment has {files.segment.size:,} bytes; none has more than {MAX_SEGMENT_BYTES:,}"
            )
        blocks = self.blocks
        if any(block.lines < 1 or block.size < 1 for block in blocks):
            raise ValueError("it says that a block of its segment is empty")
        if (sum(block.lines for block in blocks), sum(block.size for block in blocks)) != (
            chain.count,
            files.segment.size,
        ):
            raise ValueError("its blocks do not add up to its segment")
        for file in (files.segment, files.index):
            if "/" in file.name or number_of(file.name) != chain.first.seq:
                raise ValueError(f"it names {shown(file.name)}, which is not a file of its segment")


def _canonical(parts: dict[str, Any]) -> bytes:
    return json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def bus_folder(bus: str) -> str:
    """Return the folder of a bus, with a trailing slash; no bus name leads out of the archive."""
    return "".join(f"{'_' if part in ('', '.', '..') else part}/" for part in bus.split("/"))


def folder_of(bus: str, shard: int) -> str:
    """Return the folder of a log's files, with a trailing slash."""
    return f"{bus_folder(bus)}{shard:04d}/"


def table_file(bus: str, shard: int, sha256: str) -> str:
    """Return the name of the file that has a table of the index of paged-out observations."""
    return f"{folder_of(bus, shard)}index/{sha256}.zst"


def hash_in(name: str) -> str:
    """Return the SHA-256 in the name of a table, in the folder of its log; "" for any other file."""
    match = _TABLE.fullmatch(name)
    return match[1] if match else ""


def manifest_name(first: int) -> str:
    """Return the name of the manifest of the segment that begins with this event number."""
    return f"{first:016d}{_SUFFIX}"


def is_manifest(name: str) -> bool:
    """Return whether a file name is that of a manifest."""
    return _MANIFEST.fullmatch(name) is not None


def last_name(end: bytes | None) -> str:
    """Return the name of the last manifest from the content of the end file; "" if it cannot be read."""
    try:
        name = json.loads(end or b"")["last"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(name, str) and is_manifest(name) else ""


def number_of(name: str) -> int | None:
    """Return the number of the first event in a file, by its name; None if the file is not from an archive."""
    match = _NUMBER.match(name)
    return int(match[1]) if match else None
