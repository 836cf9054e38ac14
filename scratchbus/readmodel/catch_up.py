"""Fold a chunk of the log: documents, indexes and checkpoint are committed together, or not at all.

Any number of processes may do so: one commit wins, the others step back. The projector does nothing else; readers do
it if the projection is behind.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from scratchbus.domain.position import START, Position
from scratchbus.engine.retry_limits import JITTER
from scratchbus.engine.steps import Pause, Step, ask, ask_all
from scratchbus.errors import InvalidPosition, LogError, LogRewound, PositionLost
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import (
    Checkpoint,
    Outcome,
    check_end,
    checkpoint_key,
    not_folded_from,
    prepare_commit,
    read_checkpoint_and_end,
)
from scratchbus.eventlog.codec import Poison, decode_bodies, decode_items
from scratchbus.eventlog.gaps import find_gaps
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.log_reader import CHUNK, Chunk, LogReader
from scratchbus.eventlog.raw_entries import RawEntry, entry_fields, entry_position, is_beside, text_of
from scratchbus.projections import scratch_page
from scratchbus.projections.projection import Store
from scratchbus.projections.subjects import projection_of
from scratchbus.readmodel.additions import PageAdditions, split_additions
from scratchbus.readmodel.commits import Commits, Folded, FoldStep
from scratchbus.readmodel.fold import Fold, needed
from scratchbus.readmodel.paging_in import page_in
from scratchbus.readmodel.state_commands import commands
from scratchbus.telemetry import tracing
from scratchbus.telemetry.logs import stderr_logger

if TYPE_CHECKING:
    from scratchbus.domain.events import AnyEvent

MAX_CHUNKS = 16
"""How many chunks a projector folds before it checks whether to stop."""

_MAX_REFUSED = 20
"""How often in a row the engine may refuse a commit since its log lacks the events; a failover may cause one."""

_POLL = 0.02  # seconds
_TRACEPARENT = re.compile(rb'"traceparent":"([0-9a-f-]{55})"')

logger = stderr_logger()


class _DecodedChunk(NamedTuple):
    """The events of a chunk: additions by page, all others, and the subjects of the others, by page."""

    additions: list[PageAdditions]
    items: list[tuple[RawEntry, AnyEvent | Poison]]
    wanted: dict[str, list[str]]

    @classmethod
    def of(cls, entries: Sequence[RawEntry], shard: int) -> _DecodedChunk:
        """Decode entries. Raises CodeTooOld."""
        additions, others, decoded = split_additions(entries, decode_bodies(entries, shard), shard)
        items = decode_items(others, shard, decoded)
        return cls(additions, items, needed(item for _, item in items))


def fold_once(
    log: Log,
    shard: int,
    last_known: Checkpoint | None = None,
    chunk: int = CHUNK,
    build: int | None = None,
    max_chunks: int = 1,
    builder: str = "",
) -> Step[tuple[FoldStep, Checkpoint]]:
    """Fold the next chunk of a shard's log and commit it, to the live state or to an unfinished build.

    With `max_chunks`, fold up to so many chunks, until a commit fails. While one is folded, the engine commits the
    previous one and reads the next. A commit is valid only on top of the one before it.

    `last_known` is the checkpoint as this projector last read it; it is read again anyway. A rebuild passes the token
    of its lease as `builder`, and commits only while it holds that. Raises PositionLost if the log was trimmed past
    the checkpoint, LogRewound if it is another log, CodeTooOld.
    """
    key = checkpoint_key(log.keys(shard), build)
    start = Checkpoint.parse(None, shard)._replace(build=build or 1)
    checkpoint, found = yield from _read_chunk(log, key, start, last_known, chunk)
    commits = Commits(checkpoint)
    while found.entries:
        max_chunks -= 1
        next_reader = (yield from _read_ahead(log, key, found, shard, chunk)) if max_chunks else None
        decoded = _DecodedChunk.of(found.entries, shard)
        if decoded.wanted and not (yield from commits.settle()):  # their documents are as the last chunk leaves them
            break
        folded = yield from _fold(log, key, checkpoint, found, decoded, builder)
        if folded is None:
            return commits.step._replace(outcome=Outcome.LOST), commits.checkpoint
        next_chunk = (yield from _read_next(next_reader, key, folded.commit.now)) if next_reader is not None else None
        if not (yield from commits.settle()):
            break
        if next_chunk is None:
            yield from commits.make(folded)
            break
        # Sent after the next chunk has arrived, since the engine sends nothing while it commits.
        yield from commits.send(folded)
        checkpoint, found = folded.commit.now, next_chunk
    is_done = yield from commits.settle()
    return commits.step._replace(is_all=is_done and (found.is_end or not found.entries)), commits.checkpoint


def _fold(
    log: Log, key: str, checkpoint: Checkpoint, found: Chunk, decoded: _DecodedChunk, builder: str
) -> Step[Folded | None]:
    """Fold a chunk after a checkpoint; None if the checkpoint at `key` has moved."""
    shard = checkpoint.position.shard
    keys, fold, entries = log.keys(shard), Fold(shard, found.is_archived), found.entries
    span = None if tracing.active is None else _traced(tracing.active, entries)
    if not found.is_whole:
        fold.gaps = yield from find_gaps(keys, checkpoint.position, entries)
    if not (yield from load_documents(log, fold, decoded.wanted, checkpoint, key)):
        return None
    for entry, item in decoded.items:
        fold.apply(entry, item)
    position, event_id = entry_position(entries[-1], shard), entry_fields(entries[-1]).get(b"id", b"")
    writes = commands(keys, fold, checkpoint, decoded.additions)
    pages = Counter(item.page for item in fold.folded)
    for addition in decoded.additions:
        pages[addition.name] += addition.count
    return Folded(prepare_commit(keys, key, checkpoint, position, event_id, writes, builder), pages, span)


def _traced(tracer: tracing.Tracing, entries: Sequence[RawEntry]) -> tracing.TraceSpan:
    """Begin a span that is linked to the publication of these events."""
    bodies = (entry_fields(entry).get(b"event", b"") for entry in entries)
    found = [match[1].decode() for body in bodies if (match := _TRACEPARENT.search(body))]
    return tracer.project(scratch_page.NAME, found, len(entries))


def catch_up(log: Log, shard: int) -> Step[Checkpoint]:
    """Fold a shard's log up to its end when this began; return the checkpoint then.

    Raises what `fold_once` does, and LogRewound if the engine keeps refusing the commit.
    """
    checkpoint: Checkpoint | None = None
    refused = 0
    while True:
        folded, checkpoint = yield from fold_once(log, shard, checkpoint, max_chunks=MAX_CHUNKS)
        refused = refused + 1 if folded.outcome is Outcome.REWOUND else 0
        if refused == _MAX_REFUSED:
            raise LogRewound(
                f"shard {shard}: the events after {checkpoint.position} cannot be committed: they differ from those"
                " that the engine finds in its log; run `scratchbus verify`"
            )
        if folded.outcome is not Outcome.DONE:
            yield Pause(JITTER.uniform(0.001, 0.02))  # jitter: another projector is folding
        elif folded.is_all:
            return checkpoint


def await_fold(log: Log, shard: int, patience: float) -> Step[bool]:
    """Wait until a shard's log is folded up to its end when this began; return whether others did that.

    As long as they go on this waits; after they have stood still for `patience` (seconds) it folds the rest. To fold
    what a projector folds at the same time takes both longer.
    """
    keys, at, waited, end = log.keys(shard), START, 0.0, None
    with suppress(LogError, InvalidPosition):  # `catch_up` reports what is wrong
        while waited < patience:
            checkpoint, tail = yield from read_checkpoint_and_end(keys)
            end = end or end_of(tail, shard)
            if checkpoint.position >= end:
                return True
            waited = waited + _POLL if checkpoint.position == at else 0.0
            at = checkpoint.position
            yield Pause(_POLL)
    yield from catch_up(log, shard)
    return False


def _read_chunk(
    log: Log, key: str, start: Checkpoint, last_known: Checkpoint | None, chunk: int
) -> Step[tuple[Checkpoint, Chunk]]:
    """Read the events after the checkpoint, and check in the same round trip that it is still the known one."""
    shard = start.position.shard
    keys = log.keys(shard)

    def stored(row: bytes | None) -> Checkpoint:
        return Checkpoint.parse(row, shard) if row else start

    assumed = last_known or stored((yield from ask(shard, "GET", key)))
    while True:
        try:
            found = yield from LogReader(log, assumed.position, chunk=chunk).read(
                *_consistency_reads(keys, key, assumed.position)
            )
        except PositionLost:
            checkpoint = stored((yield from ask(shard, "GET", key)))
            if checkpoint.position == assumed.position:
                raise
            assumed = checkpoint  # others have folded the trimmed events meanwhile
            continue
        checkpoint = stored(found.replies[0])
        if checkpoint.position == assumed.position:
            _check_follows(checkpoint, found)
            return checkpoint._replace(origin=found.origin), found
        assumed = checkpoint


def _read_ahead(log: Log, key: str, found: Chunk, shard: int, chunk: int) -> Step[LogReader | None]:
    """Start reading the next chunk, unless there is none, or it may be in the archive."""
    if found.is_end or found.is_archived:
        return None
    reader = LogReader(log, entry_position(found.entries[-1], shard), chunk=chunk)
    yield from reader.read_ahead(*_consistency_reads(reader.keys, key, reader.at))
    return reader


def _read_next(reader: LogReader, key: str, checkpoint: Checkpoint) -> Step[Chunk | None]:
    """Return the chunk after a checkpoint that is about to be committed; None if it must be read after the commit."""
    try:
        found = yield from reader.read(*_consistency_reads(reader.keys, key, reader.at))
    except PositionLost:
        return None
    _check_follows(checkpoint, found)
    return found


def _consistency_reads(keys: ShardKeys, key: str, at: Position) -> list[tuple[Any, ...]]:
    """Return the reads that show whether a chunk follows the folded events: of the checkpoint, and of the log."""
    before = ("XREVRANGE", keys.log, at.stream_id, "-", "COUNT", 1)
    return [("GET", key), before, ("GET", keys.tail), ("GET", keys.origin)]


def _check_follows(checkpoint: Checkpoint, found: Chunk) -> None:
    """Raise LogRewound unless a chunk follows a checkpoint in the log that the state was folded from."""
    _, before, tail, origin = found.replies
    shard = checkpoint.position.shard
    if checkpoint.origin and checkpoint.origin != found.origin:
        raise LogRewound(f"shard {shard}: the state was folded from another log; run `scratchbus rebuild`")
    if found.entries and not found.origin:
        raise LogRewound(
            f"shard {shard}: the log has events but no origin, which is written with the first one; restore the engine"
            " from a backup"
        )
    check_end(checkpoint, tail, origin)
    for entry in [*before, *found.entries[:1]]:
        if not is_beside(entry, checkpoint.position, checkpoint.event_id):
            raise not_folded_from(shard, checkpoint.position)


def load_documents(log: Log, fold: Fold, wanted: dict[str, list[str]], checkpoint: Checkpoint, key: str) -> Step[bool]:
    """Load the documents of these subjects, by page, into the fold; return whether the checkpoint is still the same.

    `key` is where the checkpoint is kept.

    Newer documents may already contain events of the chunk, and a master that lacks the commit they come from would
    accept the commit of this fold.
    """
    if not wanted:
        return True
    keys, subjects_read = log.keys(fold.shard), list[tuple[str, list[str]]]()
    reads: list[tuple[str, ...]] = []
    for page, subjects in wanted.items():
        by_store: dict[Store, list[str]] = defaultdict(list)
        for subject in subjects:
            by_store[projection_of(subject).store].append(subject)
        for store, stored_there in by_store.items():
            subjects_read.append((page, stored_there))
            reads.append(("HMGET", getattr(keys.page(page, checkpoint.build), store), *stored_there))
    *rows, current = yield from ask_all(keys.shard, [*reads, ("GET", key)])
    for (page, subjects), found in zip(subjects_read, rows, strict=True):
        for subject, row in zip(subjects, found, strict=True):
            fold.load((page, subject), row)
    if checkpoint.is_paged and (yield from page_in(log, fold, wanted, checkpoint.build)):
        current = yield from ask(keys.shard, "GET", key)
    return text_of(current or b"") == str(checkpoint)
