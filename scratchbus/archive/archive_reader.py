"""Reading the archive as if it were the log: see `scratchbus.eventlog.archive_protocol`."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256 as hash_of
from itertools import groupby
from types import MappingProxyType
from typing import TypeVar

from scratchbus.archive.archive_check import LogCheck
from scratchbus.archive.catalog import SegmentCatalog, location_of
from scratchbus.archive.erasure import erase_events
from scratchbus.archive.lines import position_of, restore
from scratchbus.archive.lru_cache import LRUCache
from scratchbus.archive.manifest import Manifest, folder_of, table_file
from scratchbus.archive.segment import Index
from scratchbus.archive.stores import Store
from scratchbus.domain.position import START, Position
from scratchbus.engine.at_fork import reset_in_forks
from scratchbus.errors import ArchiveDamaged, ArchiveForeign
from scratchbus.eventlog.archive_protocol import Checked, EntryChunk, Fault
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_id, entry_position, text_of

T = TypeVar("T")

KEPT_BYTES = 96 * 1024 * 1024
"""The size of the cache of unpacked blocks; that of their indexes has a third of it."""


class Archive:
    """The archive of a bus, as a `LogArchive`. Threads may share it; one reads at a time."""

    def __init__(self, store: Store, bus: str) -> None:
        self.store = store
        self.where = store.where
        self._bus = bus
        self.reset_after_fork()
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """See `Threaded`: another thread of the parent may have been reading."""
        self._lock = threading.Lock()
        self._catalogs: dict[int, SegmentCatalog] = {}
        self._blocks: LRUCache[list[bytes]] = LRUCache(KEPT_BYTES)
        self._indexes: LRUCache[Index] = LRUCache(KEPT_BYTES // 3)

    def catalog(self, shard: int, origin: str) -> SegmentCatalog:
        """Return the segments of a shard's log. Raises ArchiveForeign if they belong to another log."""
        if shard not in self._catalogs:
            self._catalogs[shard] = SegmentCatalog(self.store, self._bus, shard, self._blocks, self._indexes)
        catalog = self._catalogs[shard]
        if (last := catalog.last_readable()) is not None and last.chain.origin != origin:
            del self._catalogs[shard]
            raise ArchiveForeign(
                f"{catalog.where} is the archive of another log of bus {self._bus!r}, which was flushed or replaced;"
                " set archive_url to a new location for this one"
            )
        return catalog

    def after(
        self, shard: int, origin: str, after: Position, until: Position, limit: int, page: str = ""
    ) -> EntryChunk:
        """See `LogArchive`."""
        with self._lock:
            catalog = self.catalog(shard, origin)
            manifest = self._next(catalog, after, until)
            end_seq = min(manifest.chain.last.seq, until.seq)
            if page:
                seqs = self._read(catalog, manifest, catalog.index).pages.get(page, [])
                selected = seqs[bisect_right(seqs, after.seq) : bisect_right(seqs, end_seq)][: limit + 1]
                at = selected[limit - 1] if len(selected) > limit else end_seq
            else:
                start = max(after.seq + 1, manifest.chain.first.seq)
                at = min(start + limit - 1, end_seq)
                selected = list(range(start, at + 1))
            found = self._restored(catalog, manifest, [seq for seq in selected if seq <= at], reads_on=True)
            end = self._end_of_read(catalog, manifest, at, shard)
        return EntryChunk([entry for entry in found if entry is not None and _is_behind(entry, after)], *end)

    def at(self, shard: int, origin: str, positions: Sequence[Position]) -> list[RawEntry]:
        """See `LogArchive`."""
        with self._lock:
            found = self._entries(self.catalog(shard, origin), [position.seq for position in positions])
        pairs = ((position, found[position.seq]) for position in positions)
        return [entry for position, entry in pairs if entry and entry[0].decode() == position.stream_id]

    def back(self, shard: int, origin: str, ends: Sequence[Position], limit: int) -> list[tuple[list[RawEntry], str]]:
        """See `LogArchive`."""
        chains: list[list[RawEntry]] = [[] for _ in ends]
        pending = {number: end.stream_id for number, end in enumerate(ends)}
        next_ids = [""] * len(ends)
        with self._lock:
            catalog = self.catalog(shard, origin)
            while pending:
                found = self._entries(catalog, [Position.parse(next_id).seq for next_id in pending.values()])
                for number, next_id in [*pending.items()]:
                    entry = found[Position.parse(next_id).seq]
                    if entry is not None and entry[0].decode() != next_id:
                        raise ArchiveForeign(
                            f"{catalog.where} has event {entry[0].decode()} instead of {next_id}: it is the archive of"
                            " another log; set archive_url to the archive of this one"
                        )
                    if entry is not None:
                        chains[number].append(entry)
                    # a subject's events before an erased one were erased with it
                    pending[number] = text_of(entry_fields(entry).get(b"prev", b"")) if entry is not None else ""
                    if not pending[number] or len(chains[number]) == limit:
                        next_ids[number] = pending.pop(number)
        return [*zip(chains, next_ids, strict=True)]

    def erase(
        self, shard: int, origin: str, seqs: Sequence[int], times: Mapping[int, int] = MappingProxyType({})
    ) -> Iterator[None]:
        """See `LogArchive`."""
        with self._lock:
            steps = erase_events(self.catalog(shard, origin), seqs, times)
        while True:
            with self._lock:
                if next(steps, True):
                    return
            yield

    def table(self, shard: int, sha256: str) -> bytes:
        """See `LogArchive`."""
        name = table_file(self._bus, shard, sha256)
        content = self.store.get(name)
        if content is None or hash_of(content).hexdigest() != sha256:
            problem = "it is missing" if content is None else "it was changed"
            raise ArchiveDamaged(
                f"{self.where}/{name}: {problem}; restore it from a copy of the archive, or run `scratchbus rebuild`"
            )
        return content

    def put_table(self, shard: int, content: bytes) -> str:
        """See `LogArchive`."""
        sha256 = hash_of(content).hexdigest()
        name = table_file(self._bus, shard, sha256)
        if not self.store.put_new(name, content) and self.store.get(name) != content:
            self.store.replace(name, content)  # a damaged one, which a rebuild no longer needs
        self.table(shard, sha256)
        return sha256

    def check(self, shard: int, origin: str, until: Position, erased: Collection[int]) -> Iterator[Checked]:
        """See `LogArchive`."""
        folder = folder_of(self._bus, shard)
        check = LogCheck(self.store, folder, origin=origin, until=until.seq, erased=erased)
        for _ in check.run():
            faults = [
                Fault(each.file, each.problem, each.file in check.leftovers, each.file in check.unreadable)
                for each in check.take()
            ]
            yield Checked(check.report.events, faults)

    def location(self, shard: int) -> str:
        """See `LogArchive`."""
        return location_of(self.store, folder_of(self._bus, shard))

    def last_of(self, shard: int, origin: str, page: str, subject: str) -> Position | None:
        """See `LogArchive`."""
        with self._lock:
            catalog = self.catalog(shard, origin)
            catalog.refresh()
            for first in reversed(catalog.firsts):
                manifest = catalog.manifest(first)
                seq = self._read(catalog, manifest, catalog.index).subjects.get(page, {}).get(subject)
                if seq is not None:
                    (entry,) = self._restored(catalog, manifest, [seq])
                    return entry_position(entry, shard) if entry is not None else None
        return None

    def pages_of(self, shard: int, origin: str, subjects: Collection[str]) -> dict[str, str]:
        """See `LogArchive`."""
        found: dict[str, str] = {}
        missing = set(subjects)
        with self._lock:
            catalog = self.catalog(shard, origin)
            catalog.refresh()
            for first in reversed(catalog.firsts):
                if not missing:
                    break
                index = self._read(catalog, catalog.manifest(first), catalog.index)
                for page, lasts in index.subjects.items():
                    here = missing.intersection(lasts)
                    found |= dict.fromkeys(here, page)
                    missing -= here
        return found

    def last_until(self, shard: int, origin: str, ms: int) -> Position:
        """See `LogArchive`."""
        with self._lock:
            catalog = self.catalog(shard, origin)
            catalog.refresh()
            at = bisect_right(catalog.firsts, ms, key=lambda first: catalog.manifest(first).chain.first.position.ms)
            if not at:
                return START._replace(shard=shard)
            manifest = catalog.manifest(catalog.firsts[at - 1])
            first, last = manifest.chain.first.seq, manifest.chain.last.seq
            found = bisect_right(range(first, last + 1), ms, key=lambda seq: self._time(catalog, manifest, seq))
            return Position(self._time(catalog, manifest, first + found - 1), first + found - 1, shard)

    def reaches(self, shard: int, origin: str, position: Position) -> bool:
        """See `LogArchive`."""
        with self._lock:
            catalog = self.catalog(shard, origin)
            catalog.refresh()
            last = catalog.last()
        return last is not None and last.chain.last.seq >= position.seq

    def _next(self, catalog: SegmentCatalog, after: Position, until: Position) -> Manifest:
        """Return the manifest of the segment that has the first event after a position."""
        if after.seq or not after.ms:
            return catalog.manifest_with(after.seq + 1)
        catalog.manifest_with(until.seq)  # refreshes the catalog if it is out of date
        at = bisect_left(catalog.firsts, after.ms, key=lambda first: catalog.manifest(first).chain.last.position.ms)
        return catalog.manifest(catalog.firsts[at])

    def _entries(self, catalog: SegmentCatalog, seqs: Iterable[int]) -> dict[int, RawEntry | None]:
        """Return the entries of these events, None for the erased ones."""
        found: dict[int, RawEntry | None] = {}
        for manifest, group in groupby(sorted(set(seqs)), catalog.manifest_with):
            in_segment = [*group]
            found |= zip(in_segment, self._restored(catalog, manifest, in_segment), strict=True)
        return found

    def _read(self, catalog: SegmentCatalog, manifest: Manifest, read: Callable[[Manifest], T]) -> T:
        """Read a file of a segment; if that fails and the segment was rewritten meanwhile, read the new file."""
        try:
            return read(manifest)
        except ArchiveDamaged:
            first = manifest.chain.first.seq
            catalog.refresh()
            rewritten = catalog.manifest(first)
            if rewritten == manifest:
                raise
            return read(rewritten)

    def _restored(
        self, catalog: SegmentCatalog, manifest: Manifest, seqs: Sequence[int], *, reads_on: bool = False
    ) -> list[RawEntry | None]:
        """Return the entries of events of a segment, None for the erased ones."""
        name, first, lines = manifest.files.segment.name, 0, list[bytes]()
        found = []
        for seq in seqs:
            if not 0 <= seq - first < len(lines):
                first, lines = self._block(catalog, manifest, seq, reads_on=reads_on)
            try:
                entry = restore(lines[seq - first])
            except ValueError as problem:
                raise catalog.damaged(name, f"event {seq}: {problem}") from None
            if entry is not None and not entry[0].endswith(b"-%d" % seq):
                raise catalog.damaged(name, f"event {seq}: its line is that of {entry[0].decode()}")
            found.append(entry)
        return found

    def _block(
        self, catalog: SegmentCatalog, manifest: Manifest, seq: int, *, reads_on: bool = False
    ) -> tuple[int, list[bytes]]:
        return self._read(catalog, manifest, lambda manifest: catalog.block(manifest, seq, reads_on=reads_on))

    def _time(self, catalog: SegmentCatalog, manifest: Manifest, seq: int) -> int:
        """Return the time (ms) of an event of a segment, which may be erased."""
        first, lines = self._block(catalog, manifest, seq)
        return position_of(lines[seq - first])[0]

    def _end_of_read(self, catalog: SegmentCatalog, manifest: Manifest, seq: int, shard: int) -> tuple[Position, str]:
        """Return the position of a reader after an event, and the event's id."""
        if seq == manifest.chain.last.seq:
            return manifest.chain.last.position._replace(shard=shard), manifest.chain.last.id
        (entry,) = self._restored(catalog, manifest, [seq])
        if entry is None:  # erased
            return Position(self._time(catalog, manifest, seq), seq, shard), ""
        return entry_position(entry, shard), entry_id(entry)


def _is_behind(entry: RawEntry, after: Position) -> bool:
    return entry_position(entry, after.shard) > after
