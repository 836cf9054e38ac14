"""Snapshots: the documents of a page as they were at a position, so that the past is not folded from the beginning.

They follow from the log: one that is missing costs time, and nothing else. A page's are fields of one hash. The field
`<stream id>` says how many documents there are, in how many parts, and which event the last one folded was; it is
written last. The fields `<stream id>/<n>` are the parts: stored documents with commas between them, zstd-compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from backports import zstd

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import START, Position
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.errors import EngineForbidden, EngineFull, EngineReadOnly
from scratchbus.eventlog.checkpoint import checkpoint_key, read_checkpoint
from scratchbus.eventlog.codec import entry_id, entry_position, text_of
from scratchbus.eventlog.gaps import are_erased, count_all_erased
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.positions import count_positions
from scratchbus.eventlog.stored_documents import read_observations
from scratchbus.eventlog.unzip import unzip
from scratchbus.readmodel.type_indexes import type_indexes

LEAST_EVENTS, EVENTS_PER_DOCUMENT = 5_000, 4
"""A snapshot is written when so many events came since the one before: at least, and for each document it has.

So all snapshots together have at most a quarter as many documents as the log has events, compressed to a fifth.
"""

PART = 1_000
"""How many documents are read, compressed or decoded at once."""

MOST_UNPACKED = 256 * 1024 * 1024
"""The most bytes of a part: it has 1,000 documents, each of which may have three fields of 64 KiB."""


class Snapshot(NamedTuple):
    """A snapshot that is stored: where the log was, and how many documents in how many parts there are."""

    position: Position
    documents: int
    parts: int


def is_due(events: int, documents: int) -> bool:
    """Return whether a snapshot of this many documents is due, this many events after the previous one."""
    return events >= max(LEAST_EVENTS, EVENTS_PER_DOCUMENT * documents)


def stored(keys: ShardKeys, names: PageKeys) -> Step[list[Position]]:
    """Return where there are snapshots of a page, the last first."""
    fields = yield from ask(keys.shard, "HKEYS", names.snapshots)
    places = [Position.parse(field.decode()) for field in fields if b"/" not in field]
    return sorted((place._replace(shard=keys.shard) for place in places), reverse=True)


def nearest(keys: ShardKeys, names: PageKeys, until: Position) -> Step[Snapshot | None]:
    """Return the last snapshot up to a position, if there is one.

    One that was made of events which the log does not have, from before a failover, is passed over.
    """
    for place in (yield from stored(keys, names)):
        if place > until:
            continue
        row, at, first = yield from ask_all(
            keys.shard,
            [
                ("HGET", names.snapshots, place.stream_id),
                ("XRANGE", keys.log, place.stream_id, place.stream_id),
                ("XRANGE", keys.log, "-", "+", "COUNT", 1),
            ],
        )
        if row is None or row.count(b"|") < 2:
            continue  # it has just been deleted, or nobody of ours wrote it
        documents, parts, event_id = text_of(row).split("|", 2)
        if not (documents.isdecimal() and parts.isdecimal()):
            continue
        was_trimmed = bool(not at and first and entry_position(first[0], keys.shard) > place)
        if not at and not was_trimmed:
            was_trimmed = yield from are_erased(keys, place.seq - 1, place.seq + 1)
        if was_trimmed or (at and entry_id(at[0]) == event_id):
            return Snapshot(place, int(documents), int(parts))
    return None


def load(names: PageKeys, snapshot: Snapshot) -> Step[list[Observation] | None]:
    """Return the documents of a snapshot; None when it has just been deleted, or cannot be read."""
    documents: list[Observation] = []
    for part in range(snapshot.parts):
        field = f"{snapshot.position.stream_id}/{part}"
        packed = yield from ask(snapshot.position.shard, "HGET", names.snapshots, field)
        try:
            documents += read_observations(unzip(packed or b"", MOST_UNPACKED))
        except (ValueError, RecursionError):
            return None
    return documents if len(documents) == snapshot.documents else None


def store(
    keys: ShardKeys, names: PageKeys, snapshot: Snapshot, event_id: str, parts: Sequence[bytes], erased: int
) -> Step[None]:
    """Write a snapshot, if this user may and the engine has room.

    `erased` is the number of events erased when it was begun: if more have been erased since, the snapshot is deleted,
    as it may contain them. Writing it twice does no harm, so it is retried as a read is.
    """
    shard, id = keys.shard, snapshot.position.stream_id
    with suppress(EngineReadOnly, EngineForbidden, EngineFull):
        for number, part in enumerate(parts):
            yield from ask(shard, "HSET", names.snapshots, f"{id}/{number}", part)
        yield from ask(shard, "HSET", names.snapshots, id, f"{snapshot.documents}|{len(parts)}|{event_id}")
        if (yield from count_all_erased(keys)) != erased:
            yield from ask(shard, "HDEL", names.snapshots, id, *(f"{id}/{number}" for number in range(len(parts))))


def pack(rows: Sequence[bytes]) -> bytes:
    """Return stored documents as one part of a snapshot."""
    return zstd.compress(b",".join(rows), options={zstd.CompressionParameter.checksum_flag: 1})


def take(keys: ShardKeys, page: str, is_wanted: Callable[[], bool]) -> Step[bool]:
    """Write a snapshot of a page as it is folded now, if one is due; return whether it was written.

    Gives up when someone goes on folding meanwhile, or when it is no longer wanted. One of a page of which documents
    are paged out would lack them: who looks back folds its own.
    """
    shard, key = keys.shard, checkpoint_key(keys)
    checkpoint = yield from read_checkpoint(keys)
    names = PageKeys(keys, page, checkpoint.build)
    if checkpoint.is_paged and (yield from ask(shard, "EXISTS", names.paged)):
        return False
    last = yield from nearest(keys, names, checkpoint.position)
    before, events = yield from count_positions(shard, names.positions, last.position if last else START)
    if not is_due(events - before, (yield from ask(shard, "HLEN", names.docs))):
        return False
    erased = yield from count_all_erased(keys)
    rows, parts = 0, list[bytes]()
    for index in (yield from type_indexes(names, shard)):
        at = 0
        while ids := (yield from ask(shard, "ZRANGE", index, at, at + PART - 1)):
            found, now = yield from ask_all(shard, [("HMGET", names.docs, *ids), ("GET", key)])
            if text_of(now or b"") != str(checkpoint) or not is_wanted():
                return False
            parts.append(pack(found))
            at += len(found)
        rows += at
    yield from store(keys, names, Snapshot(checkpoint.position, rows, len(parts)), checkpoint.event_id, parts, erased)
    return True
