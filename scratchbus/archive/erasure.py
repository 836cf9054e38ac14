"""The erasure of events from segments: only their hashes are kept, so that the chain stays valid."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from scratchbus.archive.blocks import pack
from scratchbus.archive.catalog import SegmentCatalog
from scratchbus.archive.lines import check_line, erase_lines, position_of
from scratchbus.archive.manifest import Manifest
from scratchbus.archive.segment import Segment, index_of
from scratchbus.errors import ArchiveDamaged


def not_yet_erased(catalog: SegmentCatalog, seqs: Collection[int]) -> list[int]:
    """Return the events among these that are archived and not yet erased, including all of a damaged segment.

    Raises ArchiveDamaged or ArchiveForeign if the last manifest cannot be read.
    """
    found: list[int] = []
    for first, in_segment in _by_segment(catalog, seqs).items():
        with suppress(ArchiveDamaged):  # `erase_events` reports it
            in_segment = in_segment.difference(catalog.manifest(first).files.erased)
        found += in_segment
    return found


def erase_events(catalog: SegmentCatalog, seqs: Collection[int], times: Mapping[int, int]) -> Iterator[None]:
    """Erase the archived events among these numbers; yield before each step that needs the lease.

    An event with another time than `times` (ms, by number) says stays: it is of a log that was since restored from an
    older backup, and gave its number to another event.

    The rewritten files get new names, then the manifest names them, then the old ones are deleted: if this is killed in
    between, the archive is valid, and erasing again completes it. Raises ArchiveUnavailable, ArchiveBusy if another
    process has rewritten a segment meanwhile, or ArchiveDamaged after the other segments.
    """
    catalog.refresh()
    failure: ArchiveDamaged | None = None
    for first, in_segment in _by_segment(catalog, seqs).items():
        yield
        try:
            manifest = catalog.manifest(first)
            within = in_segment.intersection(range(first, manifest.chain.last.seq + 1))
            remaining = within.difference(manifest.files.erased)
            if times and remaining:
                remaining = _with_times(catalog.lines(manifest), remaining, times)
            if remaining:
                rewritten = _rewrite(catalog, manifest, remaining)
                with catalog.removed_on_failure(rewritten):
                    _store(catalog, rewritten)
                yield
                catalog.replace(manifest, rewritten.manifest)
                # while a slow store replaced it, the lease may have ended, and its new holder have deleted the files
                _store(catalog, rewritten)
                yield
            catalog.sweep(first)
            if missing := in_segment - within:
                catalog.manifest_with(min(missing))  # raises
        except ArchiveDamaged as problem:
            failure = failure or problem
    if failure is not None:
        raise failure


def _with_times(lines: list[bytes], seqs: set[int], times: Mapping[int, int]) -> set[int]:
    """Return those of these numbers whose lines have these times."""
    return {seq for ms, seq in map(position_of, lines) if seq in seqs and times.get(seq, ms) == ms}


def _by_segment(catalog: SegmentCatalog, seqs: Collection[int]) -> dict[int, set[int]]:
    """Return the archived events among these numbers by the first event of their segment."""
    last, firsts = catalog.last(), catalog.firsts
    end = last.chain.last.seq if last is not None else 0
    found: dict[int, set[int]] = defaultdict(set)
    for seq in sorted(seqs):
        if seq <= end:
            found[firsts[max(0, bisect_right(firsts, seq) - 1)]].add(seq)
    return found


def _rewrite(catalog: SegmentCatalog, manifest: Manifest, seqs: set[int]) -> Segment:
    """Return a segment without these events."""
    chain, old_files = manifest.chain, manifest.files
    lines = erase_lines(catalog.lines(manifest), seqs)
    index = index_of([check_line(line, seq) for seq, line in enumerate(lines, chain.first.seq)])
    return Segment.of(chain, lines, pack(lines, chain.format), index, sorted({*old_files.erased, *seqs}))


def _store(catalog: SegmentCatalog, segment: Segment) -> None:
    """Store the files that a segment's manifest names, unless they are there."""
    for file, content in segment.contents:
        catalog.put(file, content)
