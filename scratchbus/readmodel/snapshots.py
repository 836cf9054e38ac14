"""Snapshots: the documents of a page at a position, so that the past is not folded from the beginning.

They derive from the log: a missing one only costs time. A page's snapshots are fields of one hash. The field `<stream
id>` has the number of documents, the number of parts, and the id of the last folded event; it is written last. The
fields `<stream id>/<n>` are the parts: stored documents with commas between them, zstd-compressed.

Most of a page is closed. Snapshots of the open observations are small, so there are many: the field `<stream
id>/open` has the id of the last event, a `|`, and the documents as one part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from scratchbus.domain.position import START, Position
from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.errors import EngineForbidden, EngineFull, EngineReadOnly
from scratchbus.eventlog.checkpoint import checkpoint_key, read_checkpoint
from scratchbus.eventlog.compression import decompress, zstd
from scratchbus.eventlog.gaps import are_erased, count_all_erased
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.layouts import LUA
from scratchbus.eventlog.positions import count_positions
from scratchbus.eventlog.raw_entries import entry_id, entry_kind, entry_position, text_of
from scratchbus.eventlog.stored_documents import read_many
from scratchbus.projections.stored_observation import StoredObservation
from scratchbus.readmodel.type_indexes import type_indexes

MIN_EVENTS, EVENTS_PER_DOCUMENT = 5_000, 4
"""A snapshot is written after so many events: at least, and for each of its documents.

So all snapshots together have at most a quarter as many documents as the log has events, compressed to a fifth.
"""

OPEN_MIN_EVENTS, OPEN_MAX = 1_000, 5_000
"""The same for snapshots of the open observations; a page with more open ones has no such snapshots."""

PART = 1_000
"""How many documents are read, compressed or decoded at once."""

OPEN_ENDING = b"/open"
_FRAME = b"\x28\xb5\x2f\xfd"  # how zstd begins a frame

MAX_UNPACKED = 256 * 1024 * 1024
"""The most bytes of a part: it has 1,000 documents, each of which may have three fields of 64 KiB."""

_FIELD = re.compile(rb"(\d{1,16})-(\d{1,16})(/?.*)", re.DOTALL)  # others were added by hand


@lua_script("eventlog/entries", "readmodel/snapshot", constants=LUA)
def _write_field(
    *, snapshots: Key, never: Key, erased: str, log: str, floor: str, field: str, value: bytes, count: int,
    stream_id: str, event_id: str,
) -> None:  # fmt: skip
    """Write a field of a page's snapshots, unless the number of erased events is another than `count`.

    Nor is it written if the log does not have this event at the snapshot's position. `erased`, `log` and `floor` are
    keys that a projector may only read.
    """


class Snapshot(NamedTuple):
    """A stored snapshot: its position in the log, and the numbers of its documents and parts."""

    position: Position
    documents: int
    parts: int


def is_due(events: int, documents: int) -> bool:
    """Return whether a snapshot of this many documents is due, this many events after the previous one."""
    return events >= max(MIN_EVENTS, EVENTS_PER_DOCUMENT * documents)


def is_open_due(events: int, documents: int) -> bool:
    """Return whether a snapshot of this many open documents is due, this many events after the previous one."""
    return documents <= OPEN_MAX and events >= max(OPEN_MIN_EVENTS, EVENTS_PER_DOCUMENT * documents)


def stored(keys: ShardKeys, names: PageKeys, ending: bytes = b"") -> Step[list[Position]]:
    """Return the positions of a page's snapshots, the last first; those of the open observations have an ending."""
    fields = yield from ask(keys.shard, "HKEYS", names.snapshots)
    found = (_FIELD.fullmatch(field) for field in fields)
    return sorted(
        (Position(int(match[1]), int(match[2]), keys.shard) for match in found if match and match[3] == ending),
        reverse=True,
    )


def nearest(keys: ShardKeys, names: PageKeys, until: Position) -> Step[Snapshot | None]:
    """Return the last snapshot up to a position, if there is one.

    One that was made of events which the log does not have, from before a failover, is skipped.
    """
    for position in (yield from stored(keys, names)):
        if position <= until and (found := (yield from read(keys, names, position))) is not None:
            return found
    return None


def read(keys: ShardKeys, names: PageKeys, position: Position) -> Step[Snapshot | None]:
    """Return the snapshot at a position, None unless it is there and of events that the log has."""
    row = yield from ask(keys.shard, "HGET", names.snapshots, position.stream_id)
    if row is None or row.count(b"|") < 2:
        return None  # deleted just now, or not written by scratchbus
    documents, parts, event_id = text_of(row).split("|", 2)
    if documents.isdecimal() and parts.isdecimal() and (yield from _is_of_log(keys, position, event_id)):
        return Snapshot(position, int(documents), int(parts))
    return None


def nearest_open(
    keys: ShardKeys, names: PageKeys, until: Position
) -> Step[tuple[Position, list[StoredObservation]] | None]:
    """Return the position and documents of the last snapshot of the open observations up to a position, if any."""
    for position in (yield from stored(keys, names, OPEN_ENDING)):
        if position <= until and (found := (yield from read_open(keys, names, position))) is not None:
            return position, found
    return None


def read_open(keys: ShardKeys, names: PageKeys, position: Position) -> Step[list[StoredObservation] | None]:
    """Return the documents of the snapshot of the open observations at a position, None unless they can be read."""
    row = yield from ask(keys.shard, "HGET", names.snapshots, f"{position.stream_id}/open")
    event_id, _, packed = (row or b"").partition(b"|" + _FRAME)  # an event id may have "|", but no such bytes
    if not (yield from _is_of_log(keys, position, text_of(event_id))):
        return None
    try:
        return read_many(decompress(_FRAME + packed, MAX_UNPACKED))
    except (ValueError, RecursionError):
        return None


def _is_of_log(keys: ShardKeys, position: Position, event_id: str) -> Step[bool]:
    """Return whether the log has this event there, or had: it may have been trimmed or erased since."""
    commands = [
        ("XRANGE", keys.log, position.stream_id, position.stream_id),
        ("XRANGE", keys.log, "-", "+", "COUNT", 1),
    ]
    at, first = yield from ask_all(keys.shard, commands)
    if at:
        return entry_id(at[0]) == event_id
    if first and entry_position(first[0], keys.shard) > position:
        return True
    return (yield from are_erased(keys, position.seq - 1, position.seq + 1))


def load(names: PageKeys, snapshot: Snapshot) -> Step[list[StoredObservation] | None]:
    """Return the documents of a snapshot; None if it was deleted just now, or cannot be read."""
    documents: list[StoredObservation] = []
    for part in range(snapshot.parts):
        field = f"{snapshot.position.stream_id}/{part}"
        packed = yield from ask(snapshot.position.shard, "HGET", names.snapshots, field)
        try:
            documents += read_many(decompress(packed or b"", MAX_UNPACKED))
        except (ValueError, RecursionError):
            return None
    return documents if len(documents) == snapshot.documents else None


def store(
    keys: ShardKeys, names: PageKeys, snapshot: Snapshot, event_id: str, parts: Sequence[bytes], erased: int
) -> Step[None]:
    """Write a snapshot, if this user may and the engine has room.

    `erased` is the number of events erased when it was begun: if more have been erased since, it is not written, as it
    may contain them. Nor is it if a failover has lost its last event. Writing it twice does no harm, so it is retried
    as a read is.
    """
    id = snapshot.position.stream_id
    fields = {f"{id}/{number}": part for number, part in enumerate(parts)}
    fields[id] = f"{snapshot.documents}|{len(parts)}|{event_id}".encode()
    yield from _write(keys, names, snapshot.position, event_id, fields, erased)


def _write(
    keys: ShardKeys, names: PageKeys, position: Position, event_id: str, fields: Mapping[str, bytes], erased: int
) -> Step[bool]:
    """Write the fields of a snapshot, until one is refused; return whether all were written.

    If events were erased, the erasure has deleted those before it.
    """
    with suppress(EngineReadOnly, EngineForbidden, EngineFull):
        for field, value in fields.items():
            command = _write_field(
                snapshots=names.snapshots, erased=keys.erased, never=keys.ids, log=keys.log, floor=keys.floor,
                field=field, value=value, count=erased, stream_id=position.stream_id, event_id=event_id,
            )  # fmt: skip
            if not _write_field.answer((yield from ask(keys.shard, *command)), 1, 0)[0]:
                return False
        return True
    return False


class OpenSnapshot(NamedTuple):
    """The open observations of a page after an event, to be stored."""

    position: Position
    event_id: str
    rows: Sequence[bytes]


def store_open(keys: ShardKeys, names: PageKeys, snapshots: Sequence[OpenSnapshot], erased: int) -> Step[None]:
    """Write snapshots of the open observations, as `store` does."""
    for each in snapshots:
        field = {f"{each.position.stream_id}/open": each.event_id.encode() + b"|" + pack(each.rows)}
        if not (yield from _write(keys, names, each.position, each.event_id, field, erased)):
            return


def take_open(keys: ShardKeys, page: str) -> Step[bool]:
    """Write a snapshot of a page's open observations, if one is due; return whether it was written.

    Gives up unless all events are folded, and if someone writes meanwhile: it is taken again later.
    """
    shard, key = keys.shard, checkpoint_key(keys)
    erased = yield from count_all_erased(keys)
    checkpoint = yield from read_checkpoint(keys)
    names = keys.page(page, checkpoint.build)
    last = yield from nearest_open(keys, names, checkpoint.position)
    before, events = yield from count_positions(shard, names.positions, last[0] if last else START)
    ids, tail = yield from ask_all(shard, [("ZRANGE", names.open, 0, OPEN_MAX), ("GET", keys.tail)])
    if not is_open_due(events - before, len(ids)) or end_of(tail, shard) != checkpoint.position:
        return False
    rows, now = yield from ask_all(shard, [("HMGET", names.docs, *(ids or ["-"])), ("GET", key)])
    if text_of(now or b"") != str(checkpoint) or (ids and None in rows):
        return False
    snapshot = OpenSnapshot(checkpoint.position, checkpoint.event_id, rows if ids else [])
    yield from store_open(keys, names, [snapshot], erased)
    return True


def pack(rows: Sequence[bytes]) -> bytes:
    """Return stored documents as one part of a snapshot."""
    return zstd.compress(b",".join(rows), options={zstd.CompressionParameter.checksum_flag: 1})


def take(keys: ShardKeys, page: str, is_wanted: Callable[[], bool]) -> Step[bool]:
    """Write a snapshot of a page as it is folded now, if one is due; return whether it was written.

    Gives up if another process folds meanwhile, if a tombstone may not be folded yet, if an index lists a document that
    is missing, and when it is no longer wanted. Skips a page with paged-out documents, which the snapshot would lack:
    readers of the past then fold their own.
    """
    shard, key = keys.shard, checkpoint_key(keys)
    erased = yield from count_all_erased(keys)
    checkpoint = yield from read_checkpoint(keys)
    if erased:
        after = f"({checkpoint.position.stream_id}"
        unfolded = yield from ask(shard, "XRANGE", keys.log, after, "+", "COUNT", PART)
        if len(unfolded) == PART or b"erased" in map(entry_kind, unfolded):
            return False
    names = keys.page(page, checkpoint.build)
    if checkpoint.is_paged and (yield from ask(shard, "EXISTS", names.paged, names.tables)):
        return False
    last = yield from nearest(keys, names, checkpoint.position)
    before, events = yield from count_positions(shard, names.positions, last.position if last else START)
    if not is_due(events - before, (yield from ask(shard, "HLEN", names.docs))):
        return False
    rows, parts = 0, list[bytes]()
    for index in (yield from type_indexes(names, shard)):
        at = 0
        while ids := (yield from ask(shard, "ZRANGE", index, at, at + PART - 1)):
            found, now = yield from ask_all(shard, [("HMGET", names.docs, *ids), ("GET", key)])
            if text_of(now or b"") != str(checkpoint) or None in found or not is_wanted():
                return False
            parts.append(pack(found))
            at += len(found)
        rows += at
    yield from store(keys, names, Snapshot(checkpoint.position, rows, len(parts)), checkpoint.event_id, parts, erased)
    return True
