"""The erasure of events from segments: only their hashes are kept, so that the chain stays valid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import groupby

from scratchbus.archive.blocks import pack
from scratchbus.archive.catalog import SegmentCatalog
from scratchbus.archive.lines import check_line, erase_lines
from scratchbus.archive.manifest import Manifest
from scratchbus.archive.segment import Segment, index_of


def not_yet_erased(catalog: SegmentCatalog, seqs: Collection[int]) -> list[int]:
    """Return the events among these that are archived and not yet erased. Raises ArchiveDamaged or ArchiveForeign."""
    last = catalog.last()
    end = last.chain.last.seq if last is not None else 0
    found: list[int] = []
    for manifest, in_segment in groupby(sorted(seq for seq in seqs if seq <= end), catalog.manifest_with):
        found += set(in_segment).difference(manifest.files.erased)
    return found


def erase_events(catalog: SegmentCatalog, seqs: Collection[int]) -> Iterator[None]:
    """Erase the archived events among these numbers; yield before each step that needs the lease.

    The rewritten files get new names, then the manifest names them, then the old ones are deleted: if this is killed in
    between, the archive is valid, and erasing again completes it. Raises ArchiveDamaged or ArchiveUnavailable.
    """
    catalog.refresh()
    last = catalog.last()
    by_segment: dict[int, set[int]] = defaultdict(set)
    for seq in seqs:
        if last is not None and seq <= last.chain.last.seq:
            by_segment[catalog.manifest_with(seq).chain.first.seq].add(seq)
    for first, segment_seqs in by_segment.items():
        yield
        manifest = catalog.manifest(first)
        if remaining := segment_seqs - set(manifest.files.erased):
            rewritten = _rewrite(catalog, manifest, remaining)
            yield
            catalog.replace(manifest, rewritten)
        catalog.sweep(catalog.manifest(first))


def _rewrite(catalog: SegmentCatalog, manifest: Manifest, seqs: set[int]) -> Manifest:
    """Store the files of a segment without these events, and return the manifest that names them."""
    chain, old_files = manifest.chain, manifest.files
    lines = erase_lines(catalog.lines(manifest), seqs)
    index = index_of([check_line(line, seq) for seq, line in enumerate(lines, chain.first.seq)])
    segment = Segment.of(chain, lines, pack(lines, chain.format), index, sorted({*old_files.erased, *seqs}))
    for file, content in segment.contents:
        catalog.put(file, content)
    return segment.manifest
