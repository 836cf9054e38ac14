"""Paging out: remove documents of observations that have long been final from the engine's memory.

Only the position of the last event of each stays, some 60 bytes. A process that pages out reads the log up to a given
age, and removes observations that these events made final and that have not changed since. Documents, index and cursor
must be as they were read, however far projectors have come meanwhile. So any number of processes may page out, and be
killed at any point.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import repeat
from secrets import token_hex
from typing import NamedTuple

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import START, Position
from scratchbus.engine.scripts import MAX_ARGUMENTS, Command
from scratchbus.engine.steps import Fetch, Step, ask, ask_all, batches
from scratchbus.errors import ArchiveDamaged, ArchiveUnavailable, EngineForbidden, EngineReadOnly
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.archive_protocol import EVENTS_LOST
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, FieldRead, checkpoint_key, read_unchecked, write_if_unchanged
from scratchbus.eventlog.dropped_heads import drop_heads
from scratchbus.eventlog.index_tables import PagedOut, entries_in, ids_in, name_table, pack_table, table_names
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.lag import in_ms
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_position, text_of
from scratchbus.eventlog.stored_documents import decode_observations
from scratchbus.projections import scratch_page
from scratchbus.projections.subjects import is_remembered
from scratchbus.readmodel.scope import Core
from scratchbus.readmodel.type_indexes import unlist
from scratchbus.telemetry.logs import LimitedLogger, stderr_logger

CHUNK = 500
"""The events examined at a time."""

CHUNKS = 20
"""How often that is done, per shard, in one call, so that what falls due meanwhile need not wait for long."""

MIN_ENTRIES, MAX_ENTRIES = 1_024, 16_384
"""The bounds of how many index entries of a page move at once."""

SHARE = 64
"""At least a part of what the tables have, one in so many, moves at once, so that no page has too many tables."""

_TRIES = 3
"""The attempts before it is left to others who are paging out."""

_LASTING = (b"status_changed", b"linked", b"due")
"""The kinds of events that may be the last one of a final observation that is still on its page."""

logger = stderr_logger()
limited_logger = LimitedLogger(logger)

Final = dict[str, list[Observation]]
"""The observations that may be paged out, by page."""

Documents = dict[tuple[str, str], bytes | None]
"""Documents as they are stored, by page and id."""


class PageOut(NamedTuple):
    """The number of documents that were paged out, and whether no more can be now."""

    documents: int
    is_all: bool


def page_out(core: Core, keep_ms: int | None) -> Step[PageOut]:
    """Page out observations final and unchanged for this long (None: none), as many as one call does.

    A user who may not write state pages nothing out; while the archive is away, its events wait.
    """
    documents, is_all = 0, True
    if keep_ms is None:
        return PageOut(documents, is_all)
    with suppress(EngineForbidden, EngineReadOnly):
        for shard in range(core.log.shards):
            pages = set[str]()
            for _ in range(CHUNKS):
                try:
                    final, is_end = yield from _page_out_batch(core.log, shard, keep_ms)
                except ArchiveUnavailable as problem:  # the cursor has not moved: a later call goes on here
                    limited_logger.warning("nothing is paged out while the archive is away", problem=str(problem))
                    break
                documents += sum(map(len, final.values()))
                pages.update(final)
                if is_end:
                    break
            else:
                is_all = False
            for page in pages:
                yield from _move_index(core.log, shard, page)
    return PageOut(documents, is_all)


def _page_out_batch(log: Log, shard: int, keep_ms: int) -> Step[tuple[Final, bool]]:
    """Examine the next events of a shard; return what was paged out, and whether no events are left.

    It stops at the checkpoint of the state.
    """
    keys, key = log.keys(shard), checkpoint_key(log.keys(shard))
    for _ in range(_TRIES):
        row, time = yield from ask_all(shard, [("GET", key), ("TIME",)])
        checkpoint = Checkpoint.parse(row, shard)
        names, until = keys.page("", checkpoint.build), max(0, in_ms(time) - keep_ms)
        stored = yield from ask(shard, "HGET", names.paging, "cursor")
        after = Position.parse(stored.decode())._replace(shard=shard) if stored else START._replace(shard=shard)
        entries, is_all, *_ = yield from LogReader(log, after, until=until, chunk=CHUNK, skips_lost=True).read()
        positions = (entry_position(entry, shard) for entry in entries)
        count = sum(at.ms <= until and at.seq <= checkpoint.position.seq for at in positions)
        older = entries[:count]
        if not older:
            return {}, True
        final, documents = yield from _final_documents(keys, checkpoint, older, until)
        final = yield from _provable(log, shard, final, {text_of(entry[0]): entry for entry in older})
        cursor: Command = ("HSET", names.paging, "cursor", entry_position(older[-1], shard).stream_id)
        if final:
            yield from _drop_heads(keys, final)
            reads = [FieldRead(names.paging, "cursor", stored)]
            if not (yield from _remove(keys, checkpoint, final, documents, reads, cursor)):
                continue
        else:
            yield from ask(shard, *cursor)  # safe to repeat
        return final, is_all or len(older) < len(entries)
    return {}, True  # others are doing it: retry later


def _remove(
    keys: ShardKeys, checkpoint: Checkpoint, final: Final, stored: Documents, reads: list[FieldRead], cursor: Command
) -> Step[bool]:
    """Remove these documents, add them to the index and move the cursor; return False if any of that has changed."""
    writes = [cursor]
    for page, documents in final.items():
        names = keys.page(page, checkpoint.build)
        edit = paged_out.IndexEdit(names)
        commands = paged_out.reads(names, (each.id for each in documents), (each.added_seq for each in documents))
        *rows, entry_count = yield from ask_all(keys.shard, [*commands, ("HGET", names.tables, "kept")])
        edit.load(zip(commands, rows, strict=True))
        reads.append(FieldRead(names.tables, "kept", entry_count))
        for (_, key, *fields), found in zip(commands, rows, strict=True):
            reads += map(FieldRead, repeat(key), fields, found)
        for document in documents:
            edit.add(document)
            reads.append(FieldRead(names.docs, document.id, stored[page, document.id]))
        writes += [*_removals(names, documents), *edit.commands()]
        writes.append(("HSET", names.tables, "kept", int(entry_count or 0) + len(documents)))
    return (yield from write_if_unchanged(keys, checkpoint, reads, writes, scratch_page.PAGED))


def _final_documents(
    keys: ShardKeys, checkpoint: Checkpoint, entries: Iterable[RawEntry], until: int
) -> Step[tuple[Final, Documents]]:
    """Return the subjects of these events that are final and unchanged since `until`, and all documents as stored."""
    subjects: dict[str, dict[str, None]] = defaultdict(dict)
    for entry in entries:
        fields = entry_fields(entry)
        page, subject = (text_of(fields.get(name, b"")) for name in (b"page", b"subject"))
        if fields.get(b"kind") in _LASTING and not is_remembered(subject):
            subjects[page][subject] = None
    reads: list[Command] = [("HMGET", keys.page(page, checkpoint.build).docs, *ids) for page, ids in subjects.items()]
    found = yield from ask_all(keys.shard, reads)
    final: Final = {}
    stored: Documents = {}
    for (page, ids), rows in zip(subjects.items(), found, strict=True):
        stored |= {(page, subject): row for subject, row in zip(ids, rows, strict=True)}
        documents = decode_observations([row for row in rows if row])
        if candidates := [
            document for document in documents if scratch_page.may_be_paged_out(document) and document.ms <= until
        ]:
            final[page] = candidates
    return final, stored


def _provable(log: Log, shard: int, final: Final, known: Mapping[str, RawEntry]) -> Step[Final]:
    """Return those of these documents that their events can rebuild; some of the events are known, by stream id."""
    provable: Final = {}
    for page, documents in final.items():
        try:
            index_entries = [PagedOut.of(document) for document in documents]
            rebuilt = yield from paged_out.rebuild(log, shard, index_entries, known)
        except EVENTS_LOST as lost:
            logger.warning("observations stay in the engine", page=page, reason=str(lost))
            continue
        by_id = {document.id: document for document in rebuilt}
        if equal := [document for document in documents if by_id.get(document.id) == document]:
            provable[page] = equal
    return provable


def _drop_heads(keys: ShardKeys, final: Final) -> Step[None]:
    """Drop the heads of the subjects to page out; a later write restores them first."""
    for page, documents in final.items():
        ids = {document.id: document for document in documents}
        rows = yield from ask(keys.shard, "HMGET", keys.heads(page), *ids)
        heads: dict[str, bytes] = {
            id: row
            for id, row in zip(ids, rows, strict=True)
            if (head := Head.readable(row)) and head.position == ids[id].position.stream_id
        }
        if heads:
            yield from drop_heads(keys, page, heads)


def _removals(names: PageKeys, documents: Iterable[Observation]) -> list[Command]:
    """Return the writes that remove these documents of a page and their index entries."""
    removals: dict[tuple[str, str], list[object]] = defaultdict(list)
    unlistings = dict[Command, None]()
    for document in documents:
        removals["HDEL", names.docs].append(document.id)
        for index in scratch_page.index_entries(document):
            removals["ZREM", names.index(*index)].append(document.id)
        unlistings[unlist(names, document.type)] = None
    return [*[(*command, *ids) for command, ids in removals.items()], *unlistings]


def _move_index(log: Log, shard: int, page: str) -> Step[bool]:
    """Move a page's index entries to a table in the archive if there are many; return whether they were moved.

    Without an archive, or if it cannot be written, they stay. A process killed in between leaves a table that nothing
    names.
    """
    if log.archive is None:
        return False
    keys = log.keys(shard)
    checkpoint = yield from read_unchecked(keys)
    names = keys.page(page, checkpoint.build)
    fields = (names.tables, "kept"), (names.tables, "moved"), (names.places, "moves"), (names.paging, "cursor")
    rows = yield from ask_all(shard, [("HGET", *field) for field in fields])
    entries, moved = (int(row or 0) for row in rows[:2])
    if entries < min(MAX_ENTRIES, max(MIN_ENTRIES, moved // SHARE)):
        return False
    # entries change only together with one of these fields
    reads = [FieldRead(*field, row) for field, row in zip(fields, rows, strict=True)]
    paged, flat, tables = yield from ask_all(
        shard, [("HGETALL", names.paged), ("HGETALL", names.places), ("HGETALL", names.tables)]
    )
    ids = {id: added for bucket in paged[1::2] for id, added in ids_in(bucket).items()}
    ranges = {field: row for field, row in zip(flat[::2], flat[1::2], strict=True) if field.isdigit()}
    positions = {added: position for row in ranges.values() for added, position in entries_in(row).items()}
    if not ids:
        return False
    try:
        sha256 = yield Fetch(partial(log.archive.put_table, shard, pack_table(ids, positions)))
    except (ArchiveDamaged, ArchiveUnavailable) as problem:
        limited_logger.warning(
            "the index of paged-out observations stays in the engine", page=page, problem=str(problem)
        )
        return False
    name = name_table(table_names(tables), sha256, ids, positions)
    writes: list[Command] = [
        ("DEL", names.paged),
        *(("HDEL", names.places, *batch) for batch in batches([*ranges], MAX_ARGUMENTS)),
        ("HSET", names.places, "moves", token_hex(6)),
        ("HSET", names.tables, name.number, str(name), "kept", 0, "moved", moved + len(ids)),
    ]
    return (yield from write_if_unchanged(keys, checkpoint, reads, writes, scratch_page.IN_TABLES))
