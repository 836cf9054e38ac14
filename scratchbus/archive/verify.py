"""Checking an archive without the engine: every file, every line, every link of the chain."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from hashlib import sha256
from typing import Any

from backports import zstd
from pydantic import BaseModel

from scratchbus.archive.lines import Line, check_line, place_of, restore
from scratchbus.archive.manifest import Manifest, folder_of, is_manifest
from scratchbus.archive.segment import Index, index_of, unpack
from scratchbus.archive.shelf import read_file
from scratchbus.archive.stores import Store
from scratchbus.domain.position import Position
from scratchbus.errors import ArchiveDamaged
from scratchbus.log.codec import is_batch_end

_FOLDER = re.compile(r"(.+)/(\d{4,})/[^/]+")

Report = Callable[[int, int], object]
"""Told how many segments were checked, and of how many."""


class Problem(BaseModel):
    """What is wrong with a file of an archive, or between two of them."""

    file: str
    problem: str


class LogReport(BaseModel):
    """What the archive of one log has, and what is wrong with it."""

    bus: str
    shard: int
    segments: int = 0
    events: int = 0
    erased: int = 0
    bytes: int = 0
    first: str | None = None
    last: str | None = None
    problems: list[Problem] = []


def archived_logs(store: Store) -> dict[str, list[str]]:
    """Return the folders of all logs in a store, each with the names of its files. Raises ArchiveUnavailable."""
    folders: dict[str, list[str]] = defaultdict(list)
    for name in store.list():
        if _FOLDER.fullmatch(name):
            folder, _, file = name.rpartition("/")
            folders[folder + "/"].append(file)
    return dict(folders)


class SegmentInfo(BaseModel):
    """What one segment holds, by its manifest."""

    bus: str
    shard: int
    first_seq: int
    last_seq: int
    first_at: datetime
    last_at: datetime
    events: int
    erased: int
    bytes: int
    file: str


def archived_segments(store: Store) -> Iterator[SegmentInfo]:
    """Yield what the manifests of all logs in a store say, in order. Raises ArchiveUnavailable or ArchiveDamaged."""
    for folder, names in archived_logs(store).items():
        for name in filter(is_manifest, names):
            try:
                chain, files = Manifest.parse(store.get(folder + name) or b"")
            except ValueError as problem:
                raise ArchiveDamaged(
                    f"{store.where}/{folder}{name}: {problem}; see `scratchbus archive verify`"
                ) from None
            yield SegmentInfo(
                bus=chain.bus,
                shard=chain.shard,
                first_seq=chain.first.seq,
                last_seq=chain.last.seq,
                first_at=chain.first.position.at,
                last_at=chain.last.position.at,
                events=chain.count,
                erased=len(files.erased),
                bytes=files.segment.size + files.index.size,
                file=folder + files.segment.name,
            )


def verify(store: Store, report: Report = lambda done, total: None) -> list[LogReport]:
    """Check everything in a store; return what there is of each log, and what is wrong with it.

    Raises ArchiveUnavailable.
    """
    folders = archived_logs(store)
    total = sum(is_manifest(name) for names in folders.values() for name in names)
    done, reports = 0, []
    for folder, names in folders.items():
        check = _LogCheck(store, folder, names)
        for _ in check.run():
            done += 1
            report(done, total)
        reports.append(check.report)
    return reports


class _LogCheck:
    """The check of one log's files."""

    def __init__(self, store: Store, folder: str, names: list[str]) -> None:
        match = _FOLDER.fullmatch(folder + "x")
        self.report = LogReport(bus=match[1] if match else folder, shard=int(match[2]) if match else 0)
        self._store, self._folder, self._names = store, folder, names
        self._before: Manifest | None = None
        self._is_known = True  # whether what comes before the next manifest is known
        self._named: set[str] = set()

    def run(self) -> Iterator[None]:
        """Check one segment after the other, and then whether there are files that none names."""
        for name in filter(is_manifest, self._names):
            manifest = self._manifest(name)
            if manifest is not None:
                self._link(manifest)
                self._segment(manifest)
                self._count(manifest)
            self._before, self._is_known = manifest, manifest is not None
            yield
        self._unnamed()

    def _say(self, file: str, problem: str) -> None:
        self.report.problems.append(Problem(file=self._folder + file, problem=problem))

    def _manifest(self, name: str) -> Manifest | None:
        try:
            manifest = Manifest.parse(self._store.get(self._folder + name) or b"")
        except ValueError as problem:
            self._say(name, str(problem))
            return None
        self._named |= {name, manifest.files.segment.name, manifest.files.index.name}
        if manifest.name != name:
            self._say(name, f"it is {manifest.name} under another name")
        if folder_of(manifest.chain.bus, manifest.chain.shard) != self._folder:
            self._say(name, f"it is of bus {manifest.chain.bus!r}, shard {manifest.chain.shard}")
        return manifest

    def _link(self, manifest: Manifest) -> None:
        """Check that a manifest is the next link of the chain."""
        chain, before = manifest.chain, self._before
        if not self._is_known:
            return
        expected = before.chain.last.seq + 1 if before else 1
        if chain.first.seq > expected:
            self._say(manifest.name, f"events {expected} to {chain.first.seq - 1} are missing: no segment has them")
        elif chain.first.seq < expected:
            self._say(
                manifest.name, f"its events begin at {chain.first.seq}; the segment before ends at {expected - 1}"
            )
        if before is None:
            if chain.previous is not None and chain.first.seq == 1:
                self._say(manifest.name, f"it is the first one, and says that {chain.previous} comes before it")
            return
        if chain.previous != before.name:
            self._say(manifest.name, f"it says that {chain.previous} comes before it, and {before.name} does")
        elif chain.previous_sha256 != before.chain.sha256:
            self._say(before.name, f"its SHA-256 is not the one that {manifest.name} has of it: it is another by now")
        if chain.origin != before.chain.origin:
            self._say(manifest.name, f"it is of another log than {before.name}: their origins differ")
        if chain.first.position.ms < before.chain.last.position.ms:
            self._say(manifest.name, "its events are older than those before them")

    def _segment(self, manifest: Manifest) -> None:
        """Check the segment and the index that a manifest names."""
        files, name = manifest.files, manifest.files.segment.name
        texts = self._content(manifest, name, lambda: unpack(read_file(self._store, self._folder, files.segment)))
        if texts is None:
            return
        lines = self._lines(manifest, texts)
        if lines is None:
            return
        places = [self._place(text) for text in (texts[0], texts[-1])]
        ends = [manifest.chain.first.position, manifest.chain.last.position]
        if places != ends or len(lines) != manifest.chain.count:
            self._say(
                name,
                f"it has {len(lines):,} events from {places[0]} to {places[1]}; its manifest says"
                f" {manifest.chain.count:,} from {ends[0]} to {ends[1]}",
            )
        if sha256(b"".join(hash for _, hash, *_ in lines)).hexdigest() != manifest.chain.events:
            self._say(name, "the hash over its events is not the one in the chain: an event in it is another by now")
        self._index(manifest, lines)

    def _lines(self, manifest: Manifest, texts: list[bytes]) -> list[Line] | None:
        name, ms = manifest.files.segment.name, 0
        lines = []
        for seq, text in enumerate(texts, manifest.chain.first.seq):
            try:
                lines.append(check_line(text, seq))
                at, ms = ms, place_of(text)[0]
                if ms < at:
                    raise ValueError("it is older than the one before it")
            except (ValueError, KeyError, TypeError, AttributeError) as problem:
                self._say(name, f"line {seq - manifest.chain.first.seq + 1}, event {seq}: {problem}")
                return None
        return lines

    def _index(self, manifest: Manifest, lines: list[Line]) -> None:
        files = manifest.files
        last = restore(lines[-1][0])
        if last is not None and not is_batch_end(last):
            self._say(files.segment.name, "its last batch is not whole")
        erased = [line[2] for line in lines if restore(line[0]) is None]
        if erased != files.erased:
            self._say(manifest.name, f"erased are the events {erased}; it says {files.erased}")
        index = self._content(
            manifest, files.index.name, lambda: Index.parse(read_file(self._store, self._folder, files.index))
        )
        if index is not None and index != index_of(lines):
            self._say(files.index.name, "it does not say what is in the segment")

    def _content(self, manifest: Manifest, name: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except ArchiveDamaged as problem:
            self._say(name, str(problem))
        except (zstd.ZstdError, ValueError, KeyError) as problem:
            self._say(name, f"it cannot be unpacked: {problem}")
        return None

    def _place(self, text: bytes) -> Position:
        return Position(*place_of(text))

    def _count(self, manifest: Manifest) -> None:
        report = self.report
        report.segments += 1
        report.events += manifest.chain.count
        report.erased += len(manifest.files.erased)
        report.bytes += manifest.files.segment.size + manifest.files.index.size
        report.first = report.first or manifest.chain.first.at
        report.last = manifest.chain.last.at

    def _unnamed(self) -> None:
        """Report the files that no manifest names, unless one does by now: an archiver may be at work."""
        rest = [name for name in self._names if name not in self._named and not is_manifest(name)]
        if not rest:
            return
        for name in self._store.list(self._folder):
            content = self._store.get(name) if is_manifest(name.removeprefix(self._folder)) else None
            try:
                files = Manifest.parse(content).files if content else None
            except ValueError:
                continue  # it was reported
            self._named |= {files.segment.name, files.index.name} if files else set()
        for name in rest:
            if name not in self._named and self._store.get(self._folder + name) is not None:
                self._say(name, "no manifest names it: an archiver was interrupted, or someone put it there")
