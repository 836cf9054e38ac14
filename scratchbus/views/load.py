"""Reading a page whole into memory, while others go on writing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from scratchbus.domain.events import Event
from scratchbus.engine.steps import Step, ask_all
from scratchbus.errors import EngineForbidden, EngineReadOnly
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key, read_checkpoint
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.cursor import Cursor
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.reader import read
from scratchbus.eventlog.stored_documents import decode_stored
from scratchbus.eventlog.tail import LogEntry
from scratchbus.projections.page_in_memory import LivePage, Turn
from scratchbus.projections.stored_observation import AnyObservation
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.garbage import without_collections
from scratchbus.readmodel.type_indexes import type_indexes

_AT_ONCE = 1_000  # documents that one look takes: about a millisecond of the engine's time


def read_page(log: Log, page: str, now_ms: int, keep_final_ms: int | None = None) -> Step[tuple[LivePage, Cursor]]:
    """Read a page whole, up to the end of the log as it is then; return where that is.

    What has been final for `keep_final_ms` is left out. Documents may be newer than the checkpoint that was read before
    them: what they have in them already changes nothing. Raises CodeTooOld, PositionLost, LogRewound or LogGap.
    """
    shard = log.shard(page)
    keys = log.keys(shard)
    with suppress(EngineReadOnly, EngineForbidden):  # then more is folded here
        yield from catch_up(log, shard)
    row, origin = yield from ask_all(shard, [("GET", checkpoint_key(keys)), ("GET", keys.origin)])
    checkpoint = Checkpoint.parse(row, shard)
    documents = yield from _read_documents(PageKeys(keys, page, checkpoint.build), shard)
    live = without_collections(lambda: LivePage(documents, now_ms, keep_final_ms))
    cursor = Cursor(checkpoint.position, checkpoint.event_id, (origin or b"").decode())
    name = page.encode()

    def fold(items: Sequence[LogEntry]) -> None:
        for item in items:
            if item.fields.get(b"page") == name:
                fold_item(live, item)

    yield from replay(log, cursor, fold)
    if (yield from read_checkpoint(keys)).build != checkpoint.build:
        return (yield from read_page(log, page, now_ms, keep_final_ms))
    return live, cursor


def _read_documents(names: PageKeys, shard: int) -> Step[list[AnyObservation]]:
    """Read all documents of a page, some at a time: type by type, in the order in which they were added."""
    documents: list[AnyObservation] = []
    for index in (yield from type_indexes(names, shard)):
        documents += yield from _read_index(names, shard, index)
    return documents


def _read_index(names: PageKeys, shard: int, index: str) -> Step[list[AnyObservation]]:
    documents: list[AnyObservation] = []
    last, ids = b"-inf", list[bytes]()
    while True:
        commands = [("ZRANGEBYSCORE", index, last, "+inf", "WITHSCORES", "LIMIT", 0, _AT_ONCE)]
        next_ids, *rows = yield from ask_all(shard, [*commands, *([("HMGET", names.docs, *ids)] if ids else [])])
        some = [row for row in rows[0] if row] if rows else []
        documents += without_collections(partial(decode_stored, some))
        ids = next_ids[::2]
        if not ids:
            return documents
        last = b"(" + next_ids[-1]


def replay(log: Log, cursor: Cursor, take: Callable[[Sequence[LogEntry]], None]) -> Step[None]:
    """Read the log behind a cursor to its end, in whole batches, and move the cursor with what was taken."""
    shard, ahead = cursor.position.shard, replace(cursor)
    while True:
        chunks = yield from read(log, [ahead])
        cursor.origin = ahead.origin
        if not chunks:
            return
        items = [LogEntry(entry, shard) for entry in chunks[0][1]]
        take(items)
        items[-1].place(cursor)


def fold_item(live: LivePage, item: LogEntry) -> tuple[Turn, Event | None, str]:
    """Fold an entry into a page; return what it changed, its event, and what is wrong with it. Raises CodeTooOld."""
    event = item.event
    if isinstance(event, Poison):
        return live.damage(event.subject, *event.position[:2]), None, event.reason
    turn, problem = live.evolve(event)
    return turn, None if problem else event, problem
