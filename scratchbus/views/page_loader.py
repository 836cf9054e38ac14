"""Load a whole page into memory, while others keep writing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter

from scratchbus.domain.events import AnyEvent
from scratchbus.engine.scans import run_id, scan_hash
from scratchbus.engine.steps import Step, ask_all
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key, read_checkpoint
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.eventlog.reader import read
from scratchbus.eventlog.stored_documents import decode_stored
from scratchbus.projections.page_in_memory import BeforeAfter, PageInMemory
from scratchbus.projections.stored_observation import AnyObservation
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.commits import NO_COMMIT
from scratchbus.readmodel.gc_pause import with_gc_paused

_AT_ONCE = 1_000  # documents per read: about a millisecond of the engine's time
_TRIES = 5  # while each is interrupted by a failover

_id_of = attrgetter("id")


def read_page(
    log: Log, page: str, now_ms: int, keep_final_ms: int | None = None, tries: int = _TRIES
) -> Step[tuple[PageInMemory, Cursor]]:
    """Load a page up to the current end of the log; return that end.

    Observations final for `keep_final_ms` are left out. Documents may be newer than the checkpoint read before them:
    events they already contain change nothing. They are read again after a failover meanwhile, as they may contain
    lost events, or lack others. Raises CodeTooOld, PositionLost, LogRewound or LogGap.
    """
    shard = log.shard(page)
    keys = log.keys(shard)
    with suppress(*NO_COMMIT):  # then more is folded here
        yield from catch_up(log, shard)
    process = yield from run_id(shard)
    row, origin = yield from ask_all(shard, [("GET", checkpoint_key(keys)), ("GET", keys.origin)])
    checkpoint = Checkpoint.parse(row, shard)
    documents = yield from _read_documents(PageKeys(keys, page, checkpoint.build), shard)
    loaded = with_gc_paused(lambda: PageInMemory(documents, now_ms, keep_final_ms))
    cursor = Cursor(checkpoint.position, checkpoint.event_id, text_of(origin or b""))
    name = page.encode()

    def fold(items: Sequence[LogEntry]) -> None:
        for item in items:
            if item.fields.get(b"page") == name:
                fold_item(loaded, item)

    yield from replay(log, cursor, fold)
    is_same = (yield from read_checkpoint(keys)).build == checkpoint.build
    if not is_same or (tries > 1 and (yield from run_id(shard)) != process):
        return (yield from read_page(log, page, now_ms, keep_final_ms, tries - 1))
    return loaded, cursor


def _read_documents(names: PageKeys, shard: int) -> Step[Collection[AnyObservation]]:
    """Read all documents of a page in chunks; documents added or removed meanwhile may be missing."""
    documents: dict[str, AnyObservation] = {}

    def take(rows: list[bytes]) -> None:
        batch = with_gc_paused(partial(decode_stored, rows[1::2]))
        documents.update(zip(map(_id_of, batch), batch, strict=True))  # a scan may show one twice

    yield from scan_hash(shard, take, names.docs, _AT_ONCE)
    return documents.values()


def replay(log: Log, cursor: Cursor, take: Callable[[Sequence[LogEntry]], None]) -> Step[None]:
    """Read the log after a cursor to its end, in whole batches, and advance the cursor."""
    shard, next_cursor = cursor.position.shard, replace(cursor)
    while True:
        chunks = yield from read(log, [next_cursor])
        cursor.origin = next_cursor.origin
        if not chunks:
            return
        items = [LogEntry(entry, shard) for entry in chunks[0][1]]
        take(items)
        cursor.move_to(items[-1].position, items[-1].id)


def fold_item(page: PageInMemory, item: LogEntry) -> tuple[BeforeAfter, AnyEvent | None, str]:
    """Fold an entry into a page; return its change, its event, and its error if any. Raises CodeTooOld."""
    event = item.event
    if isinstance(event, Poison):
        return page.damage(event.subject, *event.position[:2]), None, event.reason
    change, problem = page.evolve(event)
    return change, None if problem else event, problem
