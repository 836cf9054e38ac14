"""The segments of one log in a store, found by their manifests, which are cached."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import chain
from typing import NamedTuple

from scratchbus.archive.blocks import unpack_each
from scratchbus.archive.lru_cache import LRUCache
from scratchbus.archive.manifest import (
    END,
    Block,
    Manifest,
    StoredFile,
    folder_of,
    is_manifest,
    last_name,
    manifest_name,
    number_of,
)
from scratchbus.archive.segment import Index, Segment
from scratchbus.archive.stores import Store
from scratchbus.errors import ArchiveBusy, ArchiveDamaged, ArchiveForeign, ArchiveUnavailable

_INDEX_SIZE = 10  # bytes in memory for each in the file, approximately


def read_file(get: Callable[[str], bytes | None], folder: str, file: StoredFile) -> bytes:
    """Return the content of a file that a manifest names. Raises ArchiveDamaged if it is missing or was changed."""
    found = get(folder + file.name)
    if found is None:
        raise ArchiveDamaged("it is missing")
    if len(found) != file.size:
        raise ArchiveDamaged(f"it has {len(found):,} bytes instead of {file.size:,}")
    if sha256(found).hexdigest() != file.sha256:
        raise ArchiveDamaged("its SHA-256 differs from the one in its manifest: it was changed")
    return found


class _StoredBlock(NamedTuple):
    """A block in its segment: its name in the cache, the number of its first event, and its first byte in the file."""

    name: str
    block: Block
    first: int
    start: int


class SegmentCatalog:
    """The manifests of one log, and the files that they name. Every method may raise ArchiveUnavailable."""

    def __init__(
        self, store: Store, bus: str, shard: int, blocks: LRUCache[list[bytes]], indexes: LRUCache[Index]
    ) -> None:
        self.store = store
        self.folder = folder_of(bus, shard)
        self.firsts: list[int] = []
        self._bus, self._shard = bus, shard
        self._manifests: dict[int, Manifest] = {}
        self._blocks, self._indexes = blocks, indexes
        self.refresh()

    @property
    def where(self) -> str:
        """The location of the log's files, for messages."""
        return location_of(self.store, self.folder)

    def refresh(self) -> list[str]:
        """List the manifests again; return the names of all files, including those that a killed write left."""
        names = [name.removeprefix(self.folder) for name in self.store.list(self.folder)]
        self.firsts = [int(name[:16]) for name in names if is_manifest(name)]
        self._manifests.clear()
        return [name for name in names if number_of(name) is not None or name.startswith(f".{END}.")]

    def add(self, stored: Segment) -> None:
        """Add a segment that was just stored, after the others."""
        first, files = stored.manifest.chain.first.seq, stored.manifest.files
        self.firsts.append(first)
        self._manifests[first] = stored.manifest
        for each in self._stored_blocks(stored.manifest):
            at = each.first - first
            lines = stored.lines[at : at + each.block.lines]
            self._blocks.put(each.name, lines, sum(map(len, lines)))
        self._indexes.put(self.folder + files.index.name, stored.event_index, _INDEX_SIZE * files.index.size)

    def put(self, file: StoredFile, content: bytes) -> None:
        """Store a file that a manifest will name. Raises ArchiveDamaged unless it reads back unchanged."""
        self.store.put_new(self.folder + file.name, content)
        self.content(file)

    @contextmanager
    def removed_on_failure(self, segment: Segment) -> Iterator[None]:
        """Delete the files of a segment that no manifest names yet if they cannot all be stored.

        A full disk would otherwise keep them, and each further attempt would take the space that was freed meanwhile.
        """
        try:
            yield
        except ArchiveUnavailable:
            with suppress(ArchiveUnavailable):  # a later run deletes them
                for file, _ in segment.contents:
                    self.store.delete(self.folder + file.name)
            raise

    def mark_end(self, last: Manifest) -> None:
        """Write the end file, which names the last manifest, unless it names a later one, which is then missing."""
        stored_end = self.store.get(self.folder + END)
        if stored_end != last.end and last_name(stored_end) <= last.name:
            self.store.replace(self.folder + END, last.end)

    def replace(self, old: Manifest, new: Manifest) -> None:
        """Replace a manifest by one that names other files, and drop the old files from the cache.

        Raises ArchiveBusy if it was replaced already.
        """
        if self.store.get(self.folder + old.name) != old.encode():
            raise ArchiveBusy(self._shard, "another process")
        self.store.replace(self.folder + new.name, new.encode())
        self._manifests[new.chain.first.seq] = new
        self._blocks.drop(*(each.name for each in self._stored_blocks(old)))
        self._indexes.drop(self.folder + old.files.index.name)

    def sweep(self, first: int) -> None:
        """Delete the files of a segment that its manifest does not name."""
        for name in (name.removeprefix(self.folder) for name in self.store.list(self.folder)):
            if number_of(name) == first and name not in self.stored_manifest(first).names:
                self.store.delete(self.folder + name)

    def stored_manifest(self, first: int) -> Manifest:
        """Return a manifest as the store has it now: another process may have replaced it. Raises as `manifest`."""
        self._manifests.pop(first, None)
        return self.manifest(first)

    def manifest(self, first: int) -> Manifest:
        """Return the manifest of the segment that begins with this event. Raises ArchiveDamaged or ArchiveForeign."""
        found = self._manifests.get(first)  # held, since another thread may refresh the catalog at any time
        if found is None:
            name = self.folder + manifest_name(first)
            content = self.store.get(name)
            if content is None:
                raise self.damaged(manifest_name(first), "it is missing")
            try:
                found = Manifest.parse(content)
            except ValueError as problem:
                raise self.damaged(manifest_name(first), str(problem)) from None
            if (found.chain.bus, found.chain.shard) != (self._bus, self._shard):
                raise ArchiveForeign(
                    f"{self.where} is the archive of bus {found.chain.bus!r}, shard {found.chain.shard}, not of bus"
                    f" {self._bus!r}, shard {self._shard}; set archive_url to that"
                )
            if found.chain.first.seq != first:
                raise self.damaged(manifest_name(first), f"it is the manifest of event {found.chain.first.seq}")
            self._manifests[first] = found
        return found

    def last(self) -> Manifest | None:
        """Return the manifest of the last segment, None if there is none. Raises ArchiveDamaged or ArchiveForeign."""
        return self.manifest(self.firsts[-1]) if self.firsts else None

    def last_readable(self) -> Manifest | None:
        """Return the last manifest that can be read, None if there are none.

        Raises ArchiveForeign, or ArchiveDamaged if none can be read.
        """
        failure: ArchiveDamaged | None = None
        for first in reversed(self.firsts):
            try:
                return self.manifest(first)
            except ArchiveDamaged as problem:
                failure = failure or problem
        if failure is not None:
            raise failure
        return None

    def manifest_with(self, seq: int) -> Manifest:
        """Return the manifest of the segment that has this event. Raises ArchiveDamaged if none has it."""
        for is_fresh in (False, True):
            if is_fresh:
                self.refresh()
            firsts = self.firsts
            at = bisect_right(firsts, seq) - 1
            if at >= 0 and (found := self.manifest(firsts[at])).chain.last.seq >= seq:
                return found
        raise ArchiveDamaged(
            f"{self.where} does not have event {seq}, which was archived; set archive_url to the location of its"
            " segment, or restore the segment"
        )

    def lines(self, manifest: Manifest) -> list[bytes]:
        """Return the lines of a segment. Raises ArchiveDamaged."""
        stored = self._stored_blocks(manifest)
        cached = [self._blocks.get(each.name) for each in stored]
        blocks = [lines for lines in cached if lines is not None]
        return [*chain.from_iterable(blocks if len(blocks) == len(stored) else self._load(manifest, stored))]

    def block(self, manifest: Manifest, seq: int, *, reads_on: bool = False) -> tuple[int, list[bytes]]:
        """Return the number of the first event in the block that has an event, and the lines of that block.

        If a reader that `reads_on` to later events has read the block before, the rest of the segment is read at once.
        """
        stored = self._stored_blocks(manifest)
        at = bisect_right(stored, seq, key=lambda each: each.first) - 1
        lines = self._blocks.get(stored[at].name)
        if lines is None:
            reads_rest = reads_on and at > 0 and stored[at - 1].name in self._blocks
            lines = self._load(manifest, stored[at:] if reads_rest else [stored[at]])[0]
        return stored[at].first, lines

    def index(self, manifest: Manifest) -> Index:
        """Return the index of a segment. Raises ArchiveDamaged."""
        name = self.folder + manifest.files.index.name
        if (index := self._indexes.get(name)) is None:
            index = self._parsed(manifest)
            self._indexes.put(name, index, _INDEX_SIZE * manifest.files.index.size)
        return index

    def content(self, file: StoredFile) -> bytes:
        """Return the content of a file that a manifest names. Raises ArchiveDamaged if it is missing or was changed."""
        try:
            return read_file(self.store.get, self.folder, file)
        except ArchiveDamaged as problem:
            raise self.damaged(file.name, str(problem)) from None

    def damaged(self, name: str, problem: str) -> ArchiveDamaged:
        """Return the error for a damaged file."""
        return ArchiveDamaged(f"{self.where}/{name}: {problem}; restore it from a copy of the archive")

    def _stored_blocks(self, manifest: Manifest) -> list[_StoredBlock]:
        """Return the blocks of a segment, in order."""
        file, first, start = self.folder + manifest.files.segment.name, manifest.chain.first.seq, 0
        stored = []
        for block in manifest.blocks:
            stored.append(_StoredBlock(f"{file}:{block.lines}:{block.sha256}", block, first, start))
            first, start = first + block.lines, start + block.size
        return stored

    def _load(self, manifest: Manifest, stored: Sequence[_StoredBlock]) -> list[list[bytes]]:
        """Read and cache blocks of a segment that follow one another; return their lines."""
        name, start, last = manifest.files.segment.name, stored[0].start, stored[-1]
        content = self.store.get_part(self.folder + name, start, last.start + last.block.size - start)
        if content is None:
            raise self.damaged(name, "it is missing")
        try:
            loaded = [*unpack_each(content, [each.block for each in stored])]
        except ValueError as problem:
            raise self.damaged(name, f"it cannot be unpacked: {problem}") from None
        for each, lines in zip(stored, loaded, strict=True):
            self._blocks.put(each.name, lines, sum(map(len, lines)))
        return loaded

    def _parsed(self, manifest: Manifest) -> Index:
        file = manifest.files.index
        content = self.content(file)
        try:
            index = Index.parse(content)
        except ValueError as problem:
            raise self.damaged(file.name, f"it cannot be read: {first_line(problem)}") from None
        if not index.is_within(manifest.chain.first.seq, manifest.chain.last.seq):
            raise self.damaged(file.name, "it names events that the segment does not have")
        return index


def location_of(store: Store, folder: str) -> str:
    """Return the location of a log's files."""
    return f"{store.where}/{folder.rstrip('/')}"


def first_line(problem: Exception) -> str:
    """Return the first line of an error's message."""
    return str(problem).partition("\n")[0]
