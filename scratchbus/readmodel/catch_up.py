"""Folding a stretch of the log: documents, indexes and checkpoint are committed together, or not at all.

Any number of processes may do it: one commit wins, the others step back. The projector does nothing else; readers do
it when they find the projection behind.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scratchbus.engine.steps import Pause, Step, ask, ask_all
from scratchbus.errors import LogRewound, PositionLost
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.checkpoint import Checkpoint, Outcome, check_end, checkpoint_key, commit, not_folded_from
from scratchbus.eventlog.codec import (
    RawEntry,
    decode_bodies,
    decode_items,
    entry_fields,
    entry_id,
    entry_position,
    text_of,
)
from scratchbus.eventlog.gaps import find_gaps
from scratchbus.eventlog.log_reader import CHUNK, Chunk, LogReader
from scratchbus.projections.projection import Store
from scratchbus.projections.table import is_remembered, projection_of
from scratchbus.readmodel.additions import take_additions
from scratchbus.readmodel.fold import Fold, needed
from scratchbus.readmodel.state_commands import commands
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

_UNKNOWN = object()

logger = stderr_logger()


class FoldStep(NamedTuple):
    """The outcome of one step: how many events were folded, whether that was all, and whether it was committed.

    `pages` says how many of them were of each page.
    """

    events: int
    is_all: bool
    outcome: Outcome
    pages: Mapping[str, int] = {}


def fold_once(
    log: Log, shard: int, known: Checkpoint | None = None, chunk: int = CHUNK, build: int | None = None
) -> Step[tuple[FoldStep, Checkpoint]]:
    """Fold the next stretch of a shard's log and commit it, to the live state or to a build that is being made.

    `known` is the checkpoint as this projector last saw it; it is read again all the same. Raises PositionLost when
    the log was trimmed past the checkpoint, LogRewound when it is another log, CodeTooOld.
    """
    keys, key = log.keys(shard), checkpoint_key(log.keys(shard), build)
    begin = Checkpoint.parse(None, shard)._replace(build=build or 1)
    checkpoint, found = yield from _read_stretch(log, key, begin, known, chunk)
    entries = found.entries
    if not entries:
        return FoldStep(0, True, Outcome.DONE), checkpoint
    additions, others, decoded = take_additions(entries, decode_bodies(entries, shard), shard)
    items = decode_items(others, shard, decoded)
    fold = Fold(shard, found.is_archived)
    if not found.is_whole:
        fold.gaps = yield from find_gaps(keys, checkpoint.position, entries)
    if not (yield from load_documents(log, fold, needed(item for _, item in items), checkpoint, key)):
        return FoldStep(0, False, Outcome.LOST), checkpoint
    for entry, item in items:
        fold.apply(entry, item)
    last = entries[-1]
    position, event_id = entry_position(last, shard), entry_fields(last).get(b"id", b"")
    writes = commands(keys, fold, checkpoint, additions)
    outcome, now = yield from commit(keys, key, checkpoint, position, event_id, writes)
    folded = len(entries) if outcome is Outcome.DONE else 0
    counts.commits[outcome.name.lower()] += 1
    counts.folded += folded
    pages = Counter(item.page for item in fold.folded)
    for added in additions:
        pages[added.name] += added.count
    return FoldStep(folded, found.is_end, outcome, pages if folded else {}), now


def catch_up(log: Log, shard: int) -> Step[Checkpoint]:
    """Fold a shard's log until nothing is left that was there when this began; return the checkpoint then."""
    known: Checkpoint | None = None
    while True:
        folded, known = yield from fold_once(log, shard, known)
        if folded.outcome is not Outcome.DONE:
            yield Pause(random.uniform(0.001, 0.02))  # jitter: another projector is at it
        elif folded.is_all:
            return known


def _read_stretch(
    log: Log, key: str, begin: Checkpoint, known: Checkpoint | None, chunk: int
) -> Step[tuple[Checkpoint, Chunk]]:
    """Read the events behind the checkpoint, and in the same round trip that it is still the one that was known."""
    shard = begin.position.shard
    keys = log.keys(shard)

    def stored(row: bytes | None) -> Checkpoint:
        return Checkpoint.parse(row, shard) if row else begin

    guess = known or stored((yield from ask(shard, "GET", key)))
    while True:
        also = [
            ("GET", key),
            ("XREVRANGE", keys.log, guess.position.stream_id, "-", "COUNT", 1),
            ("GET", keys.tail),
            ("GET", keys.origin),
        ]
        try:
            found = yield from LogReader(log, guess.position, chunk=chunk).read(*also)
        except PositionLost:
            checkpoint = stored((yield from ask(shard, "GET", key)))
            if checkpoint.position == guess.position:
                raise
            guess = checkpoint  # others have folded what was trimmed since
            continue
        row, here, tail, origin = found.replies
        checkpoint = stored(row)
        if checkpoint.position != guess.position:
            guess = checkpoint
            continue
        if checkpoint.origin and checkpoint.origin != found.origin:
            raise LogRewound(f"shard {shard}: the state was folded from another log; run `scratchbus rebuild`")
        check_end(checkpoint, tail, origin)
        _check_order(checkpoint, [*here, *found.entries[:1]])
        return checkpoint._replace(origin=found.origin), found


def _check_order(checkpoint: Checkpoint, beside: Sequence[RawEntry]) -> None:
    """Raise LogRewound unless the checkpoint fits between these entries, the one at or before it and the next one."""
    at = checkpoint.position
    for entry in beside:
        place = entry_position(entry, at.shard)
        if place == at:
            fits = entry_id(entry) == checkpoint.event_id
        else:
            fits = place.seq != at.seq and (place.seq < at.seq) == (place < at)
        if not fits:
            raise not_folded_from(at.shard, at)


def load_documents(log: Log, fold: Fold, wanted: dict[str, list[str]], checkpoint: Checkpoint, key: str) -> Step[bool]:
    """Load the documents of these subjects, by page, into the fold; return whether the checkpoint is still the same.

    `key` is where the checkpoint is kept.

    Newer ones would be taken for what the stretch makes of them, and a master that never got the commit they come from
    would take the commit of this fold.
    """
    if not wanted:
        return True
    keys, asked = log.keys(fold.shard), list[tuple[str, list[str]]]()
    reads: list[tuple[str, ...]] = []
    for page, subjects in wanted.items():
        by_store: dict[Store, list[str]] = defaultdict(list)
        for subject in subjects:
            by_store[projection_of(subject).store].append(subject)
        for store, some in by_store.items():
            asked.append((page, some))
            reads.append(("HMGET", getattr(keys.page(page, checkpoint.build), store), *some))
    *rows, last = yield from ask_all(keys.shard, [*reads, ("GET", key)])
    for (page, subjects), found in zip(asked, rows, strict=True):
        for subject, row in zip(subjects, found, strict=True):
            fold.load((page, subject), row)
    if checkpoint.is_paged and (yield from page_in(log, fold, wanted, checkpoint.build)):
        last = yield from ask(keys.shard, "GET", key)
    return text_of(last or b"") == str(checkpoint)


def page_in(log: Log, fold: Fold, wanted: Mapping[str, Sequence[str]], build: int) -> Step[bool]:
    """Fold those of these documents again that are paged out; return whether any were looked for.

    They are then as new to what is stored, which takes them back with all their indexes. Raises PositionLost when
    their events are in an archive that cannot be read.
    """
    has_looked = False
    for page, subjects in wanted.items():
        missing = [
            subject
            for subject in subjects
            if not is_remembered(subject) and fold.documents.get((page, subject), _UNKNOWN) is None
        ]
        if not missing:
            continue
        has_looked = True
        index = yield from paged_out.read_index(log.keys(fold.shard).page(page, build), fold.shard, missing)
        places = {id: place for id in missing if (place := index.find(id)) is not None}
        for document in (yield from paged_out.rebuild(log, fold.shard, list(places.values()))):
            fold.documents[page, document.id] = document
        for id, place in places.items():  # one that was erased goes too
            index.remove(id, place)
        fold.paged_in += index.commands()
    return has_looked
