"""Read the log in order after a cursor; nothing is ever skipped silently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Call, Collect, Send, Step, ask, ask_all
from scratchbus.errors import InvalidField, LogGap, shown
from scratchbus.eventlog.archive_protocol import EntryChunk
from scratchbus.eventlog.below_floor import Floor, archived_after, entries_at, other_log, read_floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.cursor import Cursor, advised, check, trimmed
from scratchbus.eventlog.foreign import appended
from scratchbus.eventlog.gaps import not_erased
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.log_reader import MAX_BATCH, is_complete, whole_batches
from scratchbus.eventlog.positions import read_positions
from scratchbus.eventlog.raw_entries import RawEntry, entry_id, entry_position, index_in_batch, is_batch_end

CHUNK = 200
"""The entries requested at once; more if batches are longer. This many of the usual size fit into the socket of an
engine on the same host, which can then send them while earlier ones are processed."""

OLD_CHUNK = 500
"""The entries requested at once by the history index of a page, or from the archive."""

MAX_BLOCK_MS = 5_000
STOPPABLE_BLOCK_MS = 500

Chunks = list[tuple[int, list[RawEntry]]]
"""Entries by shard."""


class Stop(Protocol):
    """A stop signal: a threading.Event or an asyncio.Event."""

    def is_set(self) -> bool:
        """Return whether it is time to stop."""
        ...


def check_stop(stop: object) -> Stop | None:
    """Return a stop signal, or None. Raises InvalidField for what cannot be asked whether it is set."""
    if stop is not None and (isinstance(stop, type) or not callable(getattr(stop, "is_set", None))):
        raise InvalidField("stop", f"{shown(stop)} cannot be set; give a threading.Event or an asyncio.Event")
    return stop  # type: ignore[return-value]  # it has `is_set`


def read(log: Log, cursors: list[Cursor], block_ms: int | None = None) -> Step[Chunks]:
    """Return the next whole batches after the cursors, by shard, and move the cursors.

    With `block_ms` it waits that long for the first, unless the shards are on several servers: it must not wait for
    one while another has new events (see `Feeds.wait_behind`). Trimmed events come from the archive. A single cursor
    with a page reads the history index of that page, which may cut a batch. Raises PositionLost if there is no archive,
    LogRewound if the log is not the one that was read before, LogGap if entries are missing.
    """
    if len(cursors) == 1 and cursors[0].page:
        found = yield from _read_indexed(log, cursors[0])
        if found:
            return [(cursors[0].position.shard, found)]
    while (chunks := (yield from _read_batches(log, cursors, block_ms))) is None:
        pass
    return chunks


def _read_batches(log: Log, cursors: list[Cursor], block_ms: int | None) -> Step[Chunks | None]:
    """Return the next batches after the cursors, and move these; None if one turned out to be below the floor."""
    found: dict[int, EntryChunk] = {}
    ends: dict[int, int] = {}  # by shard, in ms: the last entry read of shards that have more
    for cursor in cursors:
        floor = cursor.floor_above
        if floor is not None and (archived := (yield from _read_archived(log, cursor, floor))).entries:
            found[archived.at.shard], ends[archived.at.shard] = archived, archived.at.ms
    live = [cursor for cursor in cursors if cursor.position.shard not in found]
    block = () if block_ms is None or found else ("BLOCK", min(block_ms, MAX_BLOCK_MS))
    groups = [live] if live else []
    if log.is_spread and len(cursors) > 1:
        groups, block = [[cursor] for cursor in live], ()
    for group in groups:
        if not (yield from _read_live(log, group, block, found, ends)):
            return None
    moves: dict[int, EntryChunk] = {}
    for cursor in cursors:
        cursor.has_more = cursor.position.shard in ends
        if (chunk := found.get(cursor.position.shard)) is None:
            continue
        if len(found) > 1 and ends:  # in order of time, so that continuing after an event misses none
            shard, last = chunk.at.shard, min((ms, shard) for shard, ms in ends.items())
            count = sum((entry_position(entry, 0).ms, shard) <= last for entry in chunk.entries)
            cursor.has_more = cursor.has_more or count < len(chunk.entries)
            chunk = _first_entries(chunk, count)
        if chunk.entries:
            moves[chunk.at.shard] = chunk
    if len(groups) == 1 and any(cursor.has_more for cursor in live):
        moved = [
            replace(each, position=moves[shard].at) if (shard := each.position.shard) in moves else each
            for each in live
        ]
        live[0].next_read = yield Send(Call(live[0].position.shard, tuple(_read_commands(log, moved, ()))))
    for cursor in cursors:  # last: after an error everything is read again
        if (move := moves.get(cursor.position.shard)) is not None:
            cursor.move_to(move.at, move.event_id)
    return [(shard, move.entries) for shard, move in moves.items()]


def _read_archived(log: Log, cursor: Cursor, floor: Floor) -> Step[EntryChunk]:
    """Return the next archived batches for a cursor below the floor; none, and move it, at the floor."""
    if cursor.origin not in ("", floor.origin):
        raise other_log(floor, cursor.position)
    for limit in (OLD_CHUNK, MAX_BATCH):
        chunk = yield from archived_after(log, floor, cursor.position, limit)
        if not chunk.entries:
            cursor.move_to(chunk.at, chunk.event_id)
        if not chunk.entries or whole_batches(chunk.entries, OLD_CHUNK):
            break
    return _whole_batches_of(chunk, OLD_CHUNK)


def _read_live(
    log: Log, cursors: list[Cursor], block: tuple[Any, ...], found: dict[int, EntryChunk], ends: dict[int, int]
) -> Step[bool]:
    """Add the next batches after the cursors in the logs of one server; return False to read again."""
    count = _count(cursors)
    streams, *replies = yield from _send_or_collect(log, cursors, block)
    entries_by_log = dict(streams or ())
    is_blocked = False
    for cursor, (origin, entry_there, tail, floor) in zip(cursors, zip(*[iter(replies)] * 4, strict=True), strict=True):
        at, keys = cursor.position, log.keys(cursor.position.shard)
        rows = entries_by_log.get(keys.log.encode(), [])
        entries = appended(rows, tail, origin, keys.shard)
        has_more, is_blocked = len(entries) >= count, is_blocked or len(entries) < len(rows)
        while has_more and len(entries) < MAX_BATCH and not whole_batches(entries, count):
            last = entries[-1][0].decode()
            more = yield from ask(keys.shard, "XRANGE", keys.log, f"({last}", "+", "COUNT", count)
            more = appended(more, tail, origin, keys.shard)
            entries, has_more = entries + more, len(more) >= count
        end = Floor.parse(floor, origin, keys.shard)
        if at < end.position and not (yield from is_complete(keys, at, entries)):
            cursor.floor = end
            return False
        if not (yield from check(log, cursor, end.origin, entry_there, entries)):
            return False
        if entries:
            chunk = EntryChunk(entries, entry_position(entries[-1], keys.shard), entry_id(entries[-1]))
            found[keys.shard] = chunk = _whole_batches_of(chunk, count)
            _, cursor.batch = index_in_batch(chunk.entries[-1])
            if has_more or len(chunk.entries) < len(entries):
                ends[keys.shard] = chunk.at.ms
    if block and is_blocked and not found:
        yield from _wait_behind_foreign(log, [cursor.position.shard for cursor in cursors], block[1])
    return True


def _send_or_collect(log: Log, cursors: list[Cursor], block: tuple[Any, ...]) -> Step[list[Any]]:
    """Return the replies to `_read_commands`: those sent ahead, if there are any and the cursors have not moved."""
    next_read, cursors[0].next_read = cursors[0].next_read, None
    if next_read is not None and next_read.call.commands == tuple(_read_commands(log, cursors, ())):
        replies: list[Any] = yield Collect(next_read)
        if replies[0]:  # else there may be entries by now
            return replies
    return (yield from ask_all(cursors[0].position.shard, _read_commands(log, cursors, block)))


def _wait_behind_foreign(log: Log, shards: list[int], ms: int) -> Step[None]:
    """Wait for a new entry in one of these shards, all on one server; one of them has an entry behind its tail.

    XREAD returns such an entry at once, so this waits after the last entry. The event that follows a repair may have a
    lower id and not end the wait; so the wait is short, and the next read begins after the cursor again.
    """
    names = [log.keys(shard).log for shard in shards]
    ms = min(ms, STOPPABLE_BLOCK_MS)
    yield from ask(shards[0], "XREAD", "COUNT", 1, "BLOCK", ms, "STREAMS", *names, *("$" for _ in names))


def _read_commands(log: Log, cursors: list[Cursor], block: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the commands that read after the cursors, and those that check that it is still the same log.

    The tail is read after the entries, so that no event among them is behind it, and the floor last, since it is raised
    before a log is trimmed.
    """
    names = [log.keys(cursor.position.shard).log for cursor in cursors]
    commands: list[tuple[Any, ...]] = [
        (
            "XREAD",
            "COUNT",
            _count(cursors),
            *block,
            "STREAMS",
            *names,
            *(cursor.position.stream_id for cursor in cursors),
        )
    ]
    for cursor in cursors:
        keys, id = log.keys(cursor.position.shard), cursor.position.stream_id
        commands += [("GET", keys.origin), ("XRANGE", keys.log, id, id), ("GET", keys.tail), ("GET", keys.floor)]
    return commands


def _count(cursors: list[Cursor]) -> int:
    """Return how many entries to request: at least as many as the last batch had, since the next may be as long."""
    return max(CHUNK, *(cursor.batch for cursor in cursors))


def _whole_batches_of(chunk: EntryChunk, limit: int) -> EntryChunk:
    """Return the whole batches of a chunk; all of it if its batch is longer than any valid one."""
    if 0 < len(chunk.entries) <= limit and is_batch_end(chunk.entries[-1]):
        return chunk
    return _first_entries(chunk, whole_batches(chunk.entries, limit) or len(chunk.entries))


def _first_entries(chunk: EntryChunk, count: int) -> EntryChunk:
    if count == len(chunk.entries):
        return chunk
    entries, shard = chunk.entries[:count], chunk.at.shard
    if not entries:
        return chunk._replace(entries=entries)
    return EntryChunk(entries, entry_position(entries[-1], shard), entry_id(entries[-1]))


def _read_indexed(log: Log, cursor: Cursor) -> Step[list[RawEntry]]:
    """Return the next entries of one page by its history index; reads no other pages.

    At the end of the index the cursor leaves it, and continues in the log after the checkpoint.
    """
    shard = cursor.position.shard
    keys, cursor.has_more = log.keys(shard), True
    while True:
        if cursor.floor_above:
            chunk = yield from archived_after(log, cursor.floor_above, cursor.position, OLD_CHUNK, cursor.page)
            cursor.move_to(chunk.at, chunk.event_id)
            if chunk.entries:
                return chunk.entries
        checkpoint = yield from read_checkpoint(keys)
        key = PageKeys(keys, cursor.page, checkpoint.build).positions
        positions = yield from read_positions(shard, key, cursor.position, OLD_CHUNK)
        cursor.floor = yield from read_floor(log, shard)  # after the index, which loses entries below it
        if cursor.floor_above or (yield from read_checkpoint(keys)).build != checkpoint.build:
            continue  # some of the entries read may be gone
        if not positions or checkpoint.origin != cursor.origin:
            cursor.page = ""
            if checkpoint.origin == cursor.origin and checkpoint.position > cursor.position:
                cursor.move_to(checkpoint.position, checkpoint.event_id)
            return []
        entries: list[RawEntry] = yield from entries_at(log, positions)
        if len(entries) != len(positions):
            found = {entry_position(entry, shard) for entry in entries}
            missing = yield from not_erased(keys, [position for position in positions if position not in found])
            if missing and missing[0] == positions[0]:
                raise trimmed(cursor.position, f"{missing[0]} is not there")
            if missing:
                message = f"{len(missing)} events of page {cursor.page!r} are missing, the first at {missing[0]}"
                raise advised(LogGap(f"shard {shard}: {message}"))
        cursor.move_to(positions[-1], entry_id(entries[-1]) if entries else "")
        if entries:  # else all of them were erased just now
            return entries


def wait(log: Log, behind: Mapping[int, Position], seconds: float) -> Step[bool]:
    """Wait for an event after one of these positions, all on one server; return whether there is one."""
    shards, ms = list(behind), max(1, int(seconds * 1000))
    names = [log.keys(shard).log for shard in shards]
    ids = [position.stream_id for position in behind.values()]
    ends = [("GET", key) for keys in map(log.keys, shards) for key in (keys.tail, keys.origin)]
    read_on = ("XREAD", "COUNT", 1, "BLOCK", ms, "STREAMS", *names, *ids)
    streams, *rows = yield from ask_all(shards[0], [read_on, *ends])
    found = dict(streams or ())
    has_event = any(
        appended(found.get(name.encode(), []), tail, origin, shard)
        for name, tail, origin, shard in zip(names, rows[::2], rows[1::2], shards, strict=True)
    )
    if streams and not has_event:
        yield from _wait_behind_foreign(log, shards, ms)
    return has_event
