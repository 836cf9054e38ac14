"""Paging out: remove documents of observations that have long been final from the engine's memory.

Only the position of the last event of each stays, some 60 bytes. A process that pages out follows the log: it removes
observations that became final back then and have not changed since, in a commit that succeeds only if nobody has
folded or paged out meanwhile. So any number of processes may do it, and be killed anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import START, Position
from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Step, ask, ask_all
from scratchbus.errors import EngineForbidden, EngineReadOnly, PositionLost
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint, Outcome, checkpoint_key, commit, prepare_commit
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.lag import in_ms
from scratchbus.eventlog.layouts import Head
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_position
from scratchbus.eventlog.revive import drop_heads
from scratchbus.eventlog.stored_documents import decode_observations
from scratchbus.projections import scratch_page
from scratchbus.projections.table import is_remembered
from scratchbus.readmodel.scope import Core
from scratchbus.readmodel.type_indexes import unlist
from scratchbus.telemetry.logs import stderr_logger

CHUNK = 500
"""The events examined for one commit: some milliseconds of the engine's time."""

CHUNKS = 20
"""The commits per shard in one call."""

_TRIES = 3
_COMMITS = 100
"""How often documents that stay the same are committed anew, because a projector committed meanwhile."""

_LASTING = (b"status_changed", b"linked", b"due")
"""The kinds of events that may be the last one of a final observation that is still on its page."""

logger = stderr_logger()

Final = dict[str, list[Observation]]
"""The observations that may be paged out, by page."""

Stored = dict[Command, Sequence[bytes | None]]
"""Documents as they are stored, by the command that reads them."""


def page_out(core: Core, keep_ms: int | None) -> Step[int]:
    """Page out observations final and unchanged for this long (None: none); return the number of documents.

    A user who may not write state pages nothing out.
    """
    count = 0
    if keep_ms is None:
        return count
    with suppress(EngineForbidden, EngineReadOnly):
        for shard in range(core.log.shards):
            for _ in range(CHUNKS):
                some, is_all = yield from _page_some_out(core.log, shard, keep_ms)
                count += some
                if is_all:
                    break
    return count


def _page_some_out(log: Log, shard: int, keep_ms: int) -> Step[tuple[int, bool]]:
    """Examine the next events of a shard; return the number of documents paged out, and whether no events are left.

    It stops at the checkpoint of the state.
    """
    keys, key = log.keys(shard), checkpoint_key(log.keys(shard))
    for _ in range(_TRIES):
        row, time = yield from ask_all(shard, [("GET", key), ("TIME",)])
        checkpoint = Checkpoint.parse(row, shard)
        names, until = PageKeys(keys, "", checkpoint.build), max(0, in_ms(time) - keep_ms)
        stored = yield from ask(shard, "HGET", names.paging, "cursor")
        after = Position.parse(stored.decode())._replace(shard=shard) if stored else START._replace(shard=shard)
        entries, is_all, *_ = yield from LogReader(log, after, until=until, chunk=CHUNK, skips_lost=True).read()
        old = [entry for entry in entries if _is_old(entry_position(entry, shard), until, checkpoint)]
        if not old:
            return 0, True
        found = yield from _final(keys, checkpoint, old, until)
        if found is None:
            continue
        final, documents = found
        final = yield from _provable(log, shard, final)
        cursor: Command = ("HSET", names.paging, "cursor", entry_position(old[-1], shard).stream_id)
        if final:
            yield from _drop(keys, final)
            writes = [cursor]
            for page, some in final.items():
                index = yield from _index(keys, page, checkpoint, some)
                writes += [*_removals(keys, page, checkpoint, some), *index.commands()]
            if not (yield from _commit(keys, checkpoint, writes, cursor_was=stored, documents=documents)):
                continue
        else:
            yield from ask(shard, *cursor)  # safe to repeat
        return sum(map(len, final.values())), is_all or len(old) < len(entries)
    return 0, True  # others are doing it: retry later


def _is_old(place: Position, until: int, checkpoint: Checkpoint) -> bool:
    return place.ms <= until and place.seq <= checkpoint.position.seq


def _commit(
    keys: ShardKeys, checkpoint: Checkpoint, writes: Sequence[Command], cursor_was: bytes | None, documents: Stored
) -> Step[bool]:
    """Commit, also behind a projector that goes on committing; return False if the documents or the cursor changed.

    The checkpoint is read before the documents: if it is still the same when the writes are made, so are they.
    """
    key = checkpoint_key(keys)
    cursor_now: Command = ("HGET", PageKeys(keys, "", checkpoint.build).paging, "cursor")
    for _ in range(_COMMITS):
        place, event_id = checkpoint.position, checkpoint.event_id.encode()
        prepared = prepare_commit(keys, key, checkpoint, place, event_id, writes, pages_out=True)
        outcome, _ = yield from commit(prepared)
        if outcome is Outcome.DONE:
            return True
        row, cursor, *rows = yield from ask_all(keys.shard, [("GET", key), cursor_now, *documents])
        now = Checkpoint.parse(row, keys.shard)
        if (now.build, now.origin, cursor, rows) != (
            checkpoint.build, checkpoint.origin, cursor_was, [*documents.values()]
        ):  # fmt: skip
            return False
        checkpoint = now
    return False


def _final(
    keys: ShardKeys, checkpoint: Checkpoint, entries: Iterable[RawEntry], until: int
) -> Step[tuple[Final, Stored] | None]:
    """Return the subjects of these events that are final and unchanged since `until`, and all their documents.

    Return None if others are doing it.
    """
    subjects: dict[str, dict[str, None]] = defaultdict(dict)
    for entry in entries:
        fields = entry_fields(entry)
        page, subject = (fields.get(name, b"").decode("utf-8", "replace") for name in (b"page", b"subject"))
        if fields.get(b"kind") in _LASTING and not is_remembered(subject):
            subjects[page][subject] = None
    reads: list[Command] = [
        ("HMGET", PageKeys(keys, page, checkpoint.build).docs, *some) for page, some in subjects.items()
    ]
    *found, row = yield from ask_all(keys.shard, [*reads, ("GET", checkpoint_key(keys))])
    if (row or b"").decode() != str(checkpoint):
        return None
    final: Final = {}
    for page, rows in zip(subjects, found, strict=True):
        documents = decode_observations([stored for stored in rows if stored])
        if old := [one for one in documents if scratch_page.may_be_paged_out(one) and one.ms <= until]:
            final[page] = old
    return final, dict(zip(reads, found, strict=True))


def _provable(log: Log, shard: int, final: Final) -> Step[Final]:
    """Return those of these documents that their events can rebuild."""
    out: Final = {}
    for page, some in final.items():
        try:
            made = yield from paged_out.rebuild(log, shard, [paged_out.PagedOut.of(document) for document in some])
        except PositionLost:
            continue  # without permission to read them, do not page them out
        same = {document.id: document for document in made}
        if sure := [document for document in some if same.get(document.id) == document]:
            out[page] = sure
    return out


def _drop(keys: ShardKeys, final: Final) -> Step[None]:
    """Drop the heads of the subjects to page out; a later write restores them first."""
    for page, some in final.items():
        ids = {document.id: document for document in some}
        rows = yield from ask(keys.shard, "HMGET", keys.heads(page), *ids)
        heads: Mapping[str, bytes] = {
            id: row
            for id, row in zip(ids, rows, strict=True)
            if row and Head.parse(row).position == ids[id].position.stream_id
        }
        if heads:
            yield from drop_heads(keys, page, heads)


def _index(
    keys: ShardKeys, page: str, checkpoint: Checkpoint, some: Sequence[Observation]
) -> Step[paged_out.IndexEdit]:
    """Return the index of a page's paged-out subjects, with these added."""
    names = PageKeys(keys, page, checkpoint.build)
    ids, added = [each.id for each in some], [each.added_seq for each in some]
    edit = yield from paged_out.read_index(names, keys.shard, ids, added)
    for document in some:
        edit.add(document)
    return edit


def _removals(keys: ShardKeys, page: str, checkpoint: Checkpoint, some: Iterable[Observation]) -> list[Command]:
    """Return the writes that remove these documents and their index entries."""
    names = PageKeys(keys, page, checkpoint.build)
    gone: dict[tuple[str, str], list[object]] = defaultdict(list)
    left = dict[Command, None]()
    for document in some:
        gone["HDEL", names.docs].append(document.id)
        for index in scratch_page.index_entries(document):
            gone["ZREM", names.index(*index)].append(document.id)
        left[unlist(names, document.type)] = None
    return [*[(*command, *ids) for command, ids in gone.items()], *left]
