"""Memories cached in this process, so that no call reads a whole session or scope.

Each is read once from the state and then updated from the log: a read fetches, in one round trip, the events since the
last one. After a log was replaced or has lost events, the memory is read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from scratchbus.domain.document import Document
from scratchbus.domain.event import Event
from scratchbus.domain.position import Position
from scratchbus.engine.at_fork import reset_in_forks
from scratchbus.engine.scans import run_id, scan_hash
from scratchbus.engine.steps import Fetch, Step, ask_all
from scratchbus.errors import IndexFailed, LogGap, LogRewound, PositionLost
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key, read_checkpoint
from scratchbus.eventlog.codec import Poison, decode_entry
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_position, text_of
from scratchbus.eventlog.reader import read
from scratchbus.eventlog.stored_documents import decode_document
from scratchbus.projections.projection import Store
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.commits import NO_COMMIT

MAX_BYTES = 64 * 1024 * 1024
"""The approximate number of bytes that a bus caches of one kind of memory; the last used one is always kept."""

_AT_ONCE = 1_000  # documents per read: about a millisecond of the engine's time
_TRIES = 5  # while each is interrupted by a failover


class Memory(Protocol):
    """The cached memory of one page."""

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        ...

    def load(self, documents: Mapping[str, Any]) -> None:
        """Take some of the stored documents, by subject, in any order; a document may come twice."""
        ...

    def loaded(self) -> None:
        """Get ready for events: all documents are loaded."""
        ...

    def evolve(self, event: Event) -> None:
        """Fold an event; one that is already folded changes nothing."""
        ...


M = TypeVar("M", bound=Memory)
T = TypeVar("T")


class MemoryKind(NamedTuple, Generic[M]):
    """A kind of memory: how to make an empty one, its documents' classes, and the prefixes of their subjects.

    `follows` are the prefixes of subjects whose events it gets. `stores` are the hashes with the documents.
    """

    make: Callable[[], M]
    documents: tuple[type[Document], ...]
    follows: tuple[str, ...]
    stores: tuple[Store, ...] = ("memory",)


class CachedMemory(Generic[M]):
    """The memory of one page, and up to where in the log it is known. Use `memory` with the lock.

    It `is_broken` once an update was interrupted: parts of it may be missing.
    """

    def __init__(self, page: str, memory: M, follows: tuple[str, ...], cursor: Cursor) -> None:
        self.lock = threading.Lock()
        self.memory = memory
        self.cursor = cursor
        self.is_broken = False
        self._page = page
        self._name = page.encode()
        self._wanted = tuple(each.encode() for each in follows)

    def catch_up(self, log: Log) -> Step[None]:
        """Fold the events since the last read. Raises PositionLost, LogRewound or LogGap."""
        cursor = replace(self.cursor)
        while True:
            chunks = yield from read(log, [cursor])
            yield from self.take(chunks[0][1] if chunks else [], cursor)
            if not cursor.has_more:
                return
            cursor.page = self._page  # far behind: read by the index of the page, as far as it goes

    def take(self, entries: Sequence[RawEntry], cursor: Cursor) -> Step[None]:
        """Fold the entries up to a cursor; known ones change nothing."""
        yield from self.locked(partial(self._take, entries, cursor))

    def locked(self, act: Callable[[], T], *, is_slow: bool = False) -> Step[T]:
        """Call a function that takes the lock; in another thread if it `is_slow`, or has to wait for one that is."""
        return (yield Fetch(act)) if is_slow or self.lock.locked() else act()

    def _take(self, entries: Sequence[RawEntry], cursor: Cursor) -> None:
        shard = cursor.position.shard
        with self.lock:
            if self.is_broken:
                raise IndexFailed("an update was interrupted")
            for entry in entries:
                fields = entry_fields(entry)
                is_ours = fields.get(b"page") == self._name and fields.get(b"subject", b"").startswith(self._wanted)
                if is_ours and entry_position(entry, shard) > self.cursor.position:
                    with suppress(Poison):
                        self._evolve(decode_entry(entry, shard))
            if cursor.position >= self.cursor.position:
                self.cursor = replace(cursor, page="")

    def _evolve(self, event: Event) -> None:
        try:
            self.memory.evolve(event)
        except BaseException:
            self.is_broken = True
            raise


class MemoryCache(Generic[M]):
    """The recently used memories of one kind. Safe to share between threads."""

    def __init__(self, kind: MemoryKind[M], most_bytes: int = MAX_BYTES) -> None:
        self._kind = kind
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._cached: OrderedDict[str, CachedMemory[M]] = OrderedDict()
        self._of_parents: list[object] = []  # not freed here: a thread of the parent may have held their locks
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """See `Threaded`: what the parent cached may share files, and be half changed."""
        self._of_parents.append(self._cached)
        self._lock, self._cached = threading.Lock(), OrderedDict()

    def fresh(self, log: Log, page: str) -> Step[CachedMemory[M]]:
        """Return the memory of a page with all acknowledged writes. Raises the errors of reading the log."""
        for is_last in (False, True):
            cached = self._cached.get(page)
            try:
                if cached is None or cached.is_broken:
                    cached = yield from self._read(log, page)
                else:
                    yield from cached.catch_up(log)
            except (PositionLost, LogRewound, LogGap, IndexFailed) as error:
                self.drop(page)
                if is_last or isinstance(error, IndexFailed):
                    raise
            else:
                self._keep(page, cached)
                return cached
        raise AssertionError("the last try returns or raises")

    def cached(self, page: str) -> CachedMemory[M] | None:
        """Return the cached memory of a page as last read, or None; mark it as recently used."""
        cached = self._cached.get(page)
        if cached is None or cached.is_broken:
            return None
        self._keep(page, cached)
        return cached

    def drop(self, page: str) -> None:
        """Forget the memory of a page; the next call reads it again."""
        with self._lock:
            self._cached.pop(page, None)

    def _keep(self, page: str, cached: CachedMemory[M]) -> None:
        with self._lock:
            self._cached[page] = cached
            self._cached.move_to_end(page)
            size = sum(each.memory.size for each in self._cached.values())
            while size > self._most_bytes and len(self._cached) > 1:
                _, evicted = self._cached.popitem(last=False)
                size -= evicted.memory.size

    def _read(self, log: Log, page: str) -> Step[CachedMemory[M]]:
        """Read the memory of a page from the state, some documents at a time, and fold the events since.

        Some may be newer than the checkpoint read before them: events that they already contain change nothing. They
        are read again after a failover meanwhile, as they may contain lost events, or lack others.
        """
        shard = log.shard(page)
        keys = log.keys(shard)
        with suppress(*NO_COMMIT):  # then more is read from the log
            yield from catch_up(log, shard)
        tries_left = _TRIES
        while True:
            tries_left -= 1
            process = yield from run_id(shard)
            row, origin = yield from ask_all(shard, [("GET", checkpoint_key(keys)), ("GET", keys.origin)])
            checkpoint = Checkpoint.parse(row, shard)
            memory = self._kind.make()
            names = keys.page(page, checkpoint.build)
            for store in self._kind.stores:
                yield from scan_hash(shard, partial(self._load, memory), getattr(names, store), _AT_ONCE)
            if (yield from read_checkpoint(keys)).build == checkpoint.build:
                memory.loaded()
                cursor = Cursor(checkpoint.position, checkpoint.event_id, text_of(origin or b""))
                cached = CachedMemory(page, memory, self._kind.follows, cursor)
                yield from cached.catch_up(log)
                if tries_left <= 0 or (yield from run_id(shard)) == process:
                    return cached

    def _load(self, memory: M, flat: Sequence[bytes]) -> None:
        """Load stored documents, given alternating subjects and rows."""
        found: dict[str, Document] = {}
        for subject, row in zip(map(text_of, flat[::2]), flat[1::2], strict=True):
            if subject.startswith(self._kind.follows):
                document = decode_document(subject, row)
                if isinstance(document, self._kind.documents):
                    found[subject] = document
        memory.load(found)


def catch_up_together(log: Log, wanted: Sequence[tuple[MemoryCache[Any], str]]) -> Step[bool]:
    """Fold the new events of some pages, in one round trip for all that are known up to the same position.

    Return False if a page is not cached, or has to catch up alone, since it is far behind or its log has changed.
    """
    by_position: dict[tuple[Position, str, str], list[CachedMemory[Any]]] = {}
    for cache, page in wanted:
        if (cached := cache.cached(page)) is None:
            return False
        cursor = cached.cursor
        by_position.setdefault((cursor.position, cursor.event_id, cursor.origin), []).append(cached)
    for position, group in by_position.items():
        shared_cursor = Cursor(*position)  # a copy: another thread may move a memory's own cursor meanwhile
        try:
            chunks = yield from read(log, [shared_cursor])
            for each in group:
                yield from each.take(chunks[0][1] if chunks else [], shared_cursor)
        except (PositionLost, LogRewound, LogGap, IndexFailed):
            return False
        if shared_cursor.has_more:
            return False
    return True
