"""The catalog of an archive and its cache, which the threads of a process share."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from scratchbus import Bus
from scratchbus.archive import archiver
from scratchbus.archive.archive_check import verify
from scratchbus.archive.archive_reader import Archive
from scratchbus.archive.archiver import archive_bus
from scratchbus.archive.catalog import SegmentCatalog
from scratchbus.archive.erasure import not_yet_erased
from scratchbus.archive.lines import position_of
from scratchbus.archive.lru_cache import LRUCache
from scratchbus.archive.manifest import Manifest
from scratchbus.archive.stores import DirectoryStore, Store, open_store
from scratchbus.errors import ArchiveBusy


@contextmanager
def hasty_threads() -> Iterator[None]:
    """Switch between threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_a_cache_keeps_what_was_used_last() -> None:
    cache: LRUCache[str] = LRUCache(2)
    for name in "ab":
        cache.put(name, name, 1)
    assert cache.get("a") == "a"
    cache.put("c", "c", 1)
    assert [cache.get(name) for name in "abc"] == ["a", None, "c"]
    cache.put("large", "larger than the cache", 3)
    assert cache.get("large") == "larger than the cache"
    cache.put("d", "d", 1)
    assert cache.get("large") is None


def test_threads_share_a_cache() -> None:
    cache: LRUCache[int] = LRUCache(50)
    problems: list[Exception] = []

    def use(seed: int) -> None:
        draw = Random(seed)
        try:
            for _ in range(5_000):
                name = str(draw.randrange(12))
                cache.put(name, seed, 10)
                cache.get(str(draw.randrange(12)))
                cache.drop(str(draw.randrange(12)))
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    with hasty_threads():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []
    for number in range(12):
        cache.put(str(number), number, 10)
    assert [number for number in range(12) if str(number) in cache] == [7, 8, 9, 10, 11]


def test_a_segment_is_found_while_another_thread_refreshes(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = SegmentCatalog(open_store(str(archive)), "kept", 0, LRUCache(1_000), LRUCache(1_000))
    manifest = SegmentCatalog.manifest

    def refreshed(self: SegmentCatalog, first: int) -> Manifest:
        found = manifest(self, first)
        self.refresh()
        return found

    monkeypatch.setattr(SegmentCatalog, "manifest", refreshed)
    assert catalog.manifest_with(15).chain.first.seq <= 15


@pytest.mark.parametrize("name", ["7.manifest.json", "²²²²²²²²²²²²²²²².manifest.json", f"{10**16}.manifest.json"])
def test_a_file_that_is_named_almost_like_a_manifest_is_ignored(archive: Path, name: str) -> None:
    folder = next(archive.rglob("*.manifest.json")).parent
    (folder / name).write_text("not a manifest")
    bus = folder.parent.relative_to(archive).as_posix()
    catalog = SegmentCatalog(open_store(str(archive)), bus, int(folder.name), LRUCache(50), LRUCache(50))
    assert len(catalog.firsts) == 5
    assert verify(open_store(str(archive)))[0].problems == []


@pytest.mark.alone
def test_finding_what_is_not_yet_erased_takes_linear_time(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archiver looks for it at each run, under its lease."""
    catalog, count = SegmentCatalog(open_store(str(archive)), "kept", 0, LRUCache(1_000), LRUCache(1_000)), 50_000
    last = catalog.last()
    assert last is not None
    end = last.chain.last.model_copy(update={"at": f"9-{count}"})
    chain = last.chain.model_copy(update={"last": end})
    files = last.files.model_copy(update={"erased": list(range(1, count + 1, 2))})
    manifest = Manifest(chain, files)
    monkeypatch.setattr(SegmentCatalog, "manifest", lambda *_: manifest)
    begun = time.perf_counter()
    assert sorted(not_yet_erased(catalog, range(1, count + 1))) == list(range(2, count + 1, 2))
    assert time.perf_counter() - begun < 3.0


class _SlowStore(DirectoryStore):
    """A store that does something else before it replaces a file."""

    def __init__(self, directory: Path, meanwhile: Callable[[], object]) -> None:
        super().__init__(directory)
        self._meanwhile = meanwhile

    def replace(self, name: str, content: bytes) -> None:
        self._meanwhile()
        super().replace(name, content)


def erase(directory: Path, seq: int, store: Store | None = None) -> Iterator[None]:
    store = store or DirectoryStore(directory)
    origin = SegmentCatalog(store, "kept", 0, LRUCache(1), LRUCache(1)).manifest(11).chain.origin
    return Archive(store, "kept").erase(0, origin, [seq])


def test_events_of_a_log_that_was_rewound_are_not_erased(archive: Path) -> None:
    catalog = SegmentCatalog(DirectoryStore(archive), "kept", 0, LRUCache(1), LRUCache(1))
    origin = catalog.manifest(11).chain.origin
    times = {seq: ms for ms, seq in map(position_of, catalog.lines(catalog.manifest(11)))}
    deque(Archive(DirectoryStore(archive), "kept").erase(0, origin, [12, 13, 14], times | {13: times[13] - 1}))
    assert catalog.stored_manifest(11).files.erased == [12, 14]
    assert problems_in(archive) == []


def problems_in(directory: Path) -> list[str]:
    return [f"{each.file}: {each.problem}" for log in verify(DirectoryStore(directory)) for each in log.problems]


def test_late_eraser_leaves_a_segment_alone_that_another_has_rewritten(archive: Path) -> None:
    late = erase(archive, 12)
    next(late), next(late)
    assert [*erase(archive, 13)]
    with pytest.raises(ArchiveBusy):
        next(late)
    assert problems_in(archive) == []


@pytest.mark.parametrize("seq", [12, 13])
def test_segment_survives_another_eraser_while_its_manifest_is_replaced(archive: Path, seq: int) -> None:
    """The lease ends while a slow store replaces the manifest."""
    store = _SlowStore(archive, lambda: [*erase(archive, seq)])
    assert [*erase(archive, 12, store)]
    assert problems_in(archive) == []
    catalog = SegmentCatalog(DirectoryStore(archive), "kept", 0, LRUCache(1), LRUCache(1))
    assert catalog.manifest(11).files.erased == [12]
    assert [*erase(archive, 13)]
    assert problems_in(archive) == []


def test_archiver_keeps_files_that_a_late_eraser_has_named_meanwhile(
    archived: Bus, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = erase(directory, 12)
    next(late), next(late)
    delete_leftovers = archiver._LogArchiver._delete_leftovers

    def delayed(run: Any, catalog: SegmentCatalog, *arguments: Any) -> None:
        catalog.manifest(11)  # as if an event of the segment was erased
        next(late, None)
        delete_leftovers(run, catalog, *arguments)

    monkeypatch.setattr(archiver._LogArchiver, "_delete_leftovers", delayed)
    archive_bus(archived)
    assert problems_in(directory) == []
