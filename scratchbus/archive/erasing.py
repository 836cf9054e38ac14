"""Erasing events from segments: their lines keep only the hashes, so that the chain holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from secrets import token_hex

from scratchbus.archive.lines import check_line, erase_lines
from scratchbus.archive.manifest import Files, Manifest, StoredFile
from scratchbus.archive.segment import index_of, pack
from scratchbus.archive.shelf import Shelf


def erase_events(shelf: Shelf, seqs: Collection[int]) -> int:
    """Erase the events with these numbers, as far as they are archived; return how many were still there.

    The rewritten files get new names, then the manifest names them, then the old ones go: whoever is killed in between
    leaves an archive that is sound, and erasing again ends it. Raises ArchiveDamaged or ArchiveUnavailable.
    """
    shelf.refresh()
    last = shelf.last()
    by_segment: dict[int, set[int]] = defaultdict(set)
    for seq in seqs:
        if last is not None and seq <= last.chain.last.seq:
            by_segment[shelf.holding(seq).chain.first.seq].add(seq)
    count = 0
    for first, mine in by_segment.items():
        manifest = shelf.manifest(first)
        if left := mine - set(manifest.files.erased):
            _rewrite(shelf, manifest, left)
            count += len(left)
        shelf.sweep(shelf.manifest(first))
    return count


def _rewrite(shelf: Shelf, manifest: Manifest, seqs: set[int]) -> None:
    chain, old = manifest.chain, manifest.files
    lines = erase_lines(shelf.lines(manifest), seqs)
    index = index_of([check_line(line, seq) for seq, line in enumerate(lines, chain.first.seq)])
    stem = f"{chain.first.seq:016d}-{chain.last.seq:016d}.{token_hex(4)}"
    text, places = pack(lines), index.encode()
    files = Files(
        segment=StoredFile.of(f"{stem}.jsonl.zst", text),
        index=StoredFile.of(f"{stem}.index.json.zst", places),
        erased=sorted({*old.erased, *seqs}),
    )
    shelf.store.put_new(shelf.folder + files.segment.name, text)
    shelf.store.put_new(shelf.folder + files.index.name, places)
    shelf.replace(manifest, Manifest(chain, files))
