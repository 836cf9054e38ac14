"""The verification of an archive without the engine: every file, every line, every link of the chain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

from scratchbus.archive.blocks import unpack
from scratchbus.archive.catalog import first_line, read_file
from scratchbus.archive.contents import archived_logs
from scratchbus.archive.file_reads import FileReads, Unreadable
from scratchbus.archive.lines import Line, check_lines, is_erased, position_of, restore
from scratchbus.archive.log_report import FileProblem, LogReport
from scratchbus.archive.manifest import END, Manifest, folder_of, hash_in, is_manifest, last_name, number_of
from scratchbus.archive.segment import Index, index_of
from scratchbus.archive.stores import Store
from scratchbus.domain.position import Position, event_range
from scratchbus.errors import ArchiveDamaged
from scratchbus.eventlog.raw_entries import is_batch_end

Report = Callable[[int, int], object]
"""Called with the number of segments checked and the total."""


def verify(
    store: Store, report: Report = lambda done, total: None, *, only_chain: bool = False, bus: str | None = None
) -> list[LogReport]:
    """Check everything in a store, or all logs of one bus, and return a report for each log.

    With `only_chain`, read no segments. Raises ArchiveUnavailable.
    """
    folders = archived_logs(store, bus)
    total = sum(is_manifest(name) for names in folders.values() for name in names)
    done, reports = 0, []
    for folder in folders:
        check = LogCheck(store, folder, only_chain=only_chain)
        for _ in check.run():
            done += 1
            report(done, total)
        reports.append(check.report)
    return reports


class LogCheck:
    """The check of one log's files.

    The archive must have the log's `origin`, every event up to the number `until`, and no content of the events whose
    numbers are in `erased`. With `only_chain`, no segment is read. `leftovers` are the files that no manifest names,
    and `unreadable` those that cannot be read.
    """

    def __init__(
        self,
        store: Store,
        folder: str,
        origin: str = "",
        until: int = 0,
        erased: Collection[int] = (),
        only_chain: bool = False,
    ) -> None:
        bus, _, shard = folder.rstrip("/").rpartition("/")
        self.report = LogReport(bus=bus, shard=int(shard))
        self._store, self._folder = FileReads(store, folder), folder
        self._origin, self._until, self._erased = origin, until, frozenset(erased)
        self._only_chain = only_chain
        self._before: Manifest | None = None
        self._is_known = True  # whether the manifest before the next one could be read
        self._has_unreadable_manifest = False
        self._named: set[str] = {END}
        self.leftovers: set[str] = set()
        self.unreadable = self._store.unreadable

    def run(self) -> Iterator[None]:
        """Check each segment, the end of the archive and each table, and report files that no manifest names."""
        all_names = [name.removeprefix(self._folder) for name in self._store.list(self._folder)]
        names = [name for name in all_names if number_of(name) is not None]
        for name in filter(is_manifest, names):
            manifest = self._check_manifest(name)
            if manifest is not None:
                self.report.count(manifest)
            self._before, self._is_known = manifest, manifest is not None
            yield
        self._check_end()
        self._report_unnamed(names)
        if not (self._only_chain or self._origin):  # the engine names the tables that are still used
            self._check_tables(all_names)
        yield

    def take(self) -> list[FileProblem]:
        """Return the problems found since the last call."""
        found, self.report.problems = self.report.problems, []
        return found

    def _get(self, name: str) -> tuple[bytes | None, str]:
        """Return the content of a file, None if there is none, and the problem if it cannot be read, else ""."""
        try:
            return self._store.get(self._folder + name), ""
        except Unreadable as problem:
            return None, str(problem)

    def _add_problem(self, file: str, problem: str) -> None:
        self.report.problems.append(FileProblem(file=self._folder + file, problem=problem))

    def _check_manifest(self, name: str) -> Manifest | None:
        """Check a manifest and its files; check again if an erasure replaced them meanwhile."""
        while True:
            problems_before, found = len(self.report.problems), self._get(name)
            manifest = self._parse(name, *found)
            if manifest is not None:
                self._check_link(manifest)
                if not self._only_chain:
                    self._check_segment(manifest)
            if len(self.report.problems) == problems_before or self._get(name) == found:
                return manifest
            del self.report.problems[problems_before:]

    def _parse(self, name: str, content: bytes | None, problem: str) -> Manifest | None:
        try:
            manifest = Manifest.parse(content or b"")
        except ValueError as invalid:
            self._has_unreadable_manifest |= bool(problem)
            self._add_problem(name, problem or str(invalid))
            return None
        self._named |= {name} | manifest.names
        if manifest.name != name:
            self._add_problem(name, f"it is the manifest {manifest.name} under another name")
        if folder_of(manifest.chain.bus, manifest.chain.shard) != self._folder:
            self._add_problem(name, f"it belongs to bus {manifest.chain.bus!r}, shard {manifest.chain.shard}")
        if self._origin and manifest.chain.origin != self._origin:
            self._add_problem(name, "it belongs to another log of this bus, which was flushed or replaced")
        return manifest

    def _check_link(self, manifest: Manifest) -> None:
        """Check that a manifest is the next link of the chain."""
        chain, before, add = manifest.chain, self._before, partial(self._add_problem, manifest.name)
        if not self._is_known:
            return
        expected = before.chain.last.seq + 1 if before else 1
        if chain.first.seq > expected:
            add(f"no segment has {event_range(expected, chain.first.seq - 1)}")
        elif chain.first.seq < expected:
            add(f"its events begin at {chain.first.seq}; the segment before ends at {expected - 1}")
        if before is None:
            if chain.previous is not None and chain.first.seq == 1:
                add(f"it is the first manifest, but names {chain.previous} as its predecessor")
            return
        if chain.previous != before.name:
            add(f"it names {chain.previous} as its predecessor instead of {before.name}")
        elif chain.previous_sha256 != before.chain.sha256:
            self._add_problem(before.name, f"its SHA-256 differs from the one in {manifest.name}: it was changed")
        if chain.origin != before.chain.origin:
            add(f"it belongs to another log than {before.name}: their origins differ")
        if chain.first.position.ms < before.chain.last.position.ms:
            add("its events are older than those of the segment before")

    def _check_segment(self, manifest: Manifest) -> None:
        """Check the segment and the index that a manifest names."""
        files, name = manifest.files, manifest.files.segment.name
        texts = self._read(
            name, lambda: unpack(read_file(self._store.get, self._folder, files.segment), manifest.blocks)
        )
        if texts is None:
            return
        lines = self._check_lines(manifest, texts)
        if lines is None:
            return
        actual_ends = [Position(*position_of(text)) for text in (texts[0], texts[-1])]
        ends = [manifest.chain.first.position, manifest.chain.last.position]
        if actual_ends != ends:
            self._add_problem(
                name,
                f"it has the events from {actual_ends[0]} to {actual_ends[1]}; its manifest says from {ends[0]} to"
                f" {ends[1]}",
            )
        if sha256(b"".join(hash for _, hash, *_ in lines)).hexdigest() != manifest.chain.events:
            self._add_problem(name, "the hash over its events differs from the one in the chain: an event was changed")
        self._check_index(manifest, lines)

    def _check_lines(self, manifest: Manifest, texts: list[bytes]) -> list[Line] | None:
        name, ms, first = manifest.files.segment.name, 0, manifest.chain.first.seq
        lines = list[Line]()
        try:
            for line in check_lines(texts, first):
                previous_ms, ms = ms, position_of(line[0])[0]
                if ms < previous_ms:
                    raise ValueError("it is older than the previous one")
                lines.append(line)
        except ValueError as problem:
            self._add_problem(name, f"line {len(lines) + 1}, event {first + len(lines)}: {problem}")
            return None
        return lines

    def _check_index(self, manifest: Manifest, lines: list[Line]) -> None:
        files = manifest.files
        last = restore(lines[-1][0])
        if last is not None and not is_batch_end(last):
            self._add_problem(files.segment.name, "its last batch is incomplete")
        erased = [line[2] for line in lines if is_erased(line[0])]
        if erased != files.erased:
            self._add_problem(manifest.name, f"it lists {files.erased} as the erased events; they are {erased}")
        remaining = sorted(self._erased.intersection(range(lines[0][2], lines[-1][2] + 1)).difference(erased))
        if remaining:
            self._add_problem(
                files.segment.name,
                f"it still has the events {remaining}, which were erased; `scratchbus log-archive run` removes them",
            )
        index = self._read(files.index.name, lambda: Index.parse(read_file(self._store.get, self._folder, files.index)))
        if index is not None and index != index_of(lines):
            self._add_problem(files.index.name, "it does not match the segment")

    def _read(self, name: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (ArchiveDamaged, Unreadable) as problem:
            self._add_problem(name, str(problem))
        except ValueError as problem:
            self._add_problem(name, f"it cannot be unpacked: {first_line(problem)}")
        return None

    def _check_end(self) -> None:
        """Check that the last manifest is the one named by the end file."""
        content, problem = self._get(END)
        name = last_name(content)
        if problem:
            self._add_problem(END, problem)
        elif content is None and self.report.segments > 1:
            self._add_problem(END, "it is missing; it names the last manifest")
        elif content is not None and not name:
            self._add_problem(END, "it does not name a manifest: it was changed")
        elif name:
            self._compare_end(name, content, *self._get(name))
        end = self._before.chain.last.seq if self._before else 0
        if self._is_known and end < self._until:
            self._add_problem(END, f"no segment has {event_range(end + 1, self._until)}, which left the log")

    def _compare_end(self, name: str, content: bytes | None, manifest: bytes | None, problem: str) -> None:
        if problem:
            if self._is_known:  # else already reported
                self._add_problem(name, problem)
            return
        if manifest is None:
            self._add_problem(
                name, "it is missing, and it was the last manifest: the events of its segment are missing"
            )
            return
        with suppress(ValueError):  # already reported
            if Manifest.parse(manifest).end != content:
                self._add_problem(END, f"it does not match {name}: one of them was changed")

    def _check_tables(self, names: list[str]) -> None:
        """Check that the tables of paged-out observations have the content by which they are named."""
        for name in names:
            wanted = hash_in(name)
            content, problem = self._get(name) if wanted else (None, "")
            if content is not None and sha256(content).hexdigest() != wanted:
                problem = "its SHA-256 differs from its name: it was changed"
            if problem:
                self._add_problem(name, problem)

    def _report_unnamed(self, names: list[str]) -> None:
        """Report files that no manifest names, unless one does by now: an archiver may be running."""
        unnamed = [name for name in names if name not in self._named and not is_manifest(name)]
        if not unnamed or self._has_unreadable_manifest:
            return
        for name in self._store.list(self._folder):
            name = name.removeprefix(self._folder)
            content = self._get(name)[0] if is_manifest(name) else None
            with suppress(ValueError):  # already reported
                self._named |= Manifest.parse(content).names if content else set()
        for name in unnamed:
            if name not in self._named and self._get(name) != (None, ""):
                self.leftovers.add(self._folder + name)
                self._add_problem(
                    name,
                    "no manifest names it: an archiver is at work or was interrupted, or it was put there by hand",
                )
