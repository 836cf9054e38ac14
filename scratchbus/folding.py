"""Folding a stretch of the log: documents, indexes and checkpoint are committed together, or not at all.

Any number of processes may do it: one commit wins, the others step back. The projector does nothing else; readers do
it when they find the projection behind.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from scratchbus.counts import counts
from scratchbus.domain.events import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.errors import LogRewound
from scratchbus.log import positions
from scratchbus.log.append import Log
from scratchbus.log.below import read_floor, stretch_after
from scratchbus.log.codec import (
    Poison,
    RawEntry,
    decode_document,
    decode_entry,
    encode_document,
    entry_fields,
    entry_position,
    is_batch_end,
)
from scratchbus.log.commit import Checkpoint, Command, Outcome, checkpoint_key, commit
from scratchbus.log.gaps import find_gaps
from scratchbus.log.keys import PageKeys, ShardKeys
from scratchbus.log.steps import Pause, Step, ask_all
from scratchbus.logs import stderr_logger
from scratchbus.projections import scratch_page

CHUNK = 1_000
"""How many events a projector folds at once; longer when a batch is longer."""

_LONGEST_BATCH = 4_096
_WIDEST = 2_000  # arguments of one command; Lua's unpack fails near 8,000

Documents = dict[tuple[str, str], Observation | None]
"""Observations by page and id; None for one that is not on the page."""

logger = stderr_logger()


class Folded(NamedTuple):
    """The outcome of one step: how many events were folded, whether that was all, and whether it was committed.

    `pages` says how many of them were of each page.
    """

    events: int
    is_all: bool
    outcome: Outcome
    pages: Mapping[str, int] = {}


@dataclass(slots=True)
class Fold:
    """The fold of a stretch of one shard's log over the documents it touches."""

    shard: int
    is_archived: bool = False  # then there is no history index of it: who reads that reads the archive
    documents: Documents = field(default_factory=dict)
    before: Documents = field(default_factory=dict)
    folded: list[Event | Poison] = field(default_factory=list)
    rejected: list[tuple[RawEntry, str]] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)

    def load(self, key: tuple[str, str], row: bytes | None) -> None:
        """Take a document as it was before the stretch."""
        self.documents[key] = self.before[key] = decode_document(row) if row else None

    def apply(self, entry: RawEntry, item: Event | Poison) -> None:
        """Fold one entry. What cannot be folded is set aside and marks its document as damaged."""
        self.folded.append(item)
        if isinstance(item, Poison):
            page, subject, reason = item.envelope["page"], item.envelope["subject"], item.reason
            before = self.documents.get((page, subject))
            if before is not None and before.seq < item.position.seq:
                self.documents[page, subject] = scratch_page.damage(before, *item.position[:2])
        else:
            key = item.page, item.subject
            self.documents[key], reason = scratch_page.fold(self.documents.get(key), item)
        if reason:
            self.rejected.append((entry, reason))


def decode_all(entries: Iterable[RawEntry], shard: int) -> Iterator[tuple[RawEntry, Event | Poison]]:
    """Decode raw entries; what is no event comes as Poison. Raises CodeTooOld."""
    for entry in entries:
        try:
            yield entry, decode_entry(entry, shard)
        except Poison as poison:
            yield entry, poison


def needed(items: Iterable[Event | Poison]) -> dict[str, list[str]]:
    """Return, by page, the subjects whose documents must be loaded before these are folded."""
    seen: set[tuple[str, str]] = set()
    pages: dict[str, list[str]] = defaultdict(list)
    for item in items:
        kind, page, subject = (
            ("poison", item.envelope["page"], item.envelope["subject"])
            if isinstance(item, Poison)
            else (item.kind, item.page, item.subject)
        )
        if (page, subject) in seen:
            continue
        seen.add((page, subject))
        if kind != "added":
            pages[page].append(subject)
    return pages


def fold_once(
    log: Log, shard: int, known: Checkpoint | None = None, chunk: int = CHUNK, build: int | None = None
) -> Step[tuple[Folded, Checkpoint]]:
    """Fold the next stretch of a shard's log and commit it, to the live state or to a build that is being made.

    `known` is the checkpoint as this projector last saw it; it is read anew all the same. Raises PositionLost when
    the log was trimmed past the checkpoint, LogRewound when it is another log, CodeTooOld.
    """
    keys, key = log.keys(shard), checkpoint_key(log.keys(shard), build)
    begin = Checkpoint.parse(None, shard)._replace(build=build or 1)
    checkpoint, entries, is_all, is_archived = yield from _read_stretch(log, keys, key, begin, known, chunk)
    if not entries:
        return Folded(0, True, Outcome.DONE), checkpoint
    items = list(decode_all(entries, shard))
    fold = Fold(shard, is_archived)
    if entry_position(entries[-1], shard).seq != checkpoint.position.seq + len(entries):
        fold.gaps = yield from find_gaps(keys, checkpoint.position, entries)
    if not (yield from load_documents(keys, fold, needed(item for _, item in items), checkpoint, key)):
        return Folded(0, False, Outcome.LOST), checkpoint
    for entry, item in items:
        fold.apply(entry, item)
    commands = list(_commands(keys, fold, checkpoint))
    last = entries[-1]
    position, event_id = entry_position(last, shard), entry_fields(last).get(b"id", b"")
    outcome, now = yield from commit(keys, key, checkpoint, position, event_id, commands)
    folded = len(entries) if outcome is Outcome.DONE else 0
    counts.commits[outcome.name.lower()] += 1
    counts.folded += folded
    pages = Counter(item.envelope["page"] if isinstance(item, Poison) else item.page for item in fold.folded)
    return Folded(folded, is_all, outcome, pages if folded else {}), now


def catch_up(log: Log, shard: int) -> Step[None]:
    """Fold a shard's log until nothing is left that was there when this began."""
    known: Checkpoint | None = None
    while True:
        folded, known = yield from fold_once(log, shard, known)
        if folded.outcome is not Outcome.DONE:
            yield Pause(random.uniform(0.001, 0.02))  # jitter: another projector is at it
        elif folded.is_all:
            return


def _read_stretch(
    log: Log, keys: ShardKeys, key: str, begin: Checkpoint, known: Checkpoint | None, chunk: int
) -> Step[tuple[Checkpoint, list[RawEntry], bool, bool]]:
    """Read the checkpoint first, then whole batches after it; say whether that is all, and whether it was archived."""
    shard = keys.shard
    guess = known or begin
    count = chunk
    while True:
        row, origin, entries = yield from ask_all(
            shard,
            [
                ("GET", key),
                ("GET", keys.origin),
                ("XRANGE", keys.log, f"({guess.position.stream_id}", "+", "COUNT", count),
            ],
        )
        checkpoint = Checkpoint.parse(row, shard) if row else begin
        if checkpoint != guess and checkpoint.position != guess.position:
            guess = checkpoint
            continue
        word = origin.decode() if origin else ""
        if checkpoint.origin and checkpoint.origin != word:
            raise LogRewound(
                f"shard {shard}: the state was folded from another log; run `scratchbus rebuild` to have it folded anew"
            )
        archived: list[RawEntry] = []
        if entries and entry_position(entries[-1], shard).seq != checkpoint.position.seq + len(entries):
            archived = yield from _read_below(log, checkpoint.position, count)
        checkpoint = checkpoint._replace(origin=word)
        entries = archived or entries
        whole = _whole_batches(entries, chunk)
        if whole or not entries:
            return checkpoint, whole, not archived and len(whole) == len(entries) < count, bool(archived)
        if count >= _LONGEST_BATCH:
            return checkpoint, list(entries), False, bool(archived)  # no such batch is ever written; do not stand still
        count = _LONGEST_BATCH


def _read_below(log: Log, after: Position, count: int) -> Step[list[RawEntry]]:
    """Return the next archived entries behind a position, none when it is not below the floor. Raises PositionLost."""
    floor = yield from read_floor(log, after.shard)
    while after < floor.position:
        stretch = yield from stretch_after(log, floor, after, count)
        if stretch.entries:
            return stretch.entries
        after = stretch.at
    return []


def _whole_batches(entries: list[RawEntry], chunk: int) -> list[RawEntry]:
    """Return so many entries, or fewer, that the last ends its batch; more when the first batch is longer than that."""
    ends = [at for at, entry in enumerate(entries, 1) if is_batch_end(entry)]
    return entries[: max((at for at in ends if at <= chunk), default=ends[0] if ends else 0)]


def load_documents(
    keys: ShardKeys, fold: Fold, wanted: dict[str, list[str]], checkpoint: Checkpoint, key: str
) -> Step[bool]:
    """Load into the fold the documents of these subjects, by page; say whether they are still those of the checkpoint.

    `key` is where the checkpoint is kept.

    Newer ones would be taken for what the stretch makes of them, and a master that never got the commit they come from
    would take the commit of this fold.
    """
    if not wanted:
        return True
    pages = [("HMGET", PageKeys(keys, page, checkpoint.build).docs, *subjects) for page, subjects in wanted.items()]
    *rows, last = yield from ask_all(keys.shard, [*pages, ("GET", key)])
    for (page, subjects), found in zip(wanted.items(), rows, strict=True):
        for subject, row in zip(subjects, found, strict=True):
            fold.load((page, subject), row)
    return (last or b"").decode() == str(checkpoint)


def _commands(keys: ShardKeys, fold: Fold, checkpoint: Checkpoint) -> Iterator[Command]:
    """Yield the writes that bring the state from before the fold to after it."""
    writes: dict[Command, list[object]] = defaultdict(list)
    cached: dict[str, PageKeys] = {}

    def names_of(page: str) -> PageKeys:
        return cached.get(page) or cached.setdefault(page, PageKeys(keys, page, checkpoint.build))

    for (page, subject), after in fold.documents.items():
        before = fold.before.get((page, subject))
        if after is before:
            continue
        name = names_of(page)
        if after is None:
            before = cast(Observation, before)  # both None would be the same
            writes["HDEL", name.docs].append(subject)
            writes["ZREM", name.all].append(subject)
            writes["ZREM", name.due].append(f"{subject}@{page}")
            for index in scratch_page.index_entries(before):
                writes["ZREM", name.index(*index)].append(subject)
            continue
        writes["HSET", name.docs] += (subject, encode_document(after))
        due, was_due = scratch_page.next_moment(after), scratch_page.next_moment(before) if before else None
        if due is not None and due != was_due:
            writes["ZADD", name.due] += (due, f"{subject}@{page}")
        elif due is None and was_due is not None:
            writes["ZREM", name.due].append(f"{subject}@{page}")
        if before is None:
            writes["ZADD", name.all] += (after.added_seq, subject)
            for index in scratch_page.index_entries(after):
                writes["ZADD", name.index(*index)] += (after.added_seq, subject)
        elif any(getattr(before, field) != getattr(after, field) for field in scratch_page.INDEXED):
            was, now = set(scratch_page.index_entries(before)), set(scratch_page.index_entries(after))
            for index in was - now:
                writes["ZREM", name.index(*index)].append(subject)
            for index in now - was:
                writes["ZADD", name.index(*index)] += (after.added_seq, subject)
    places: dict[str, list[int]] = defaultdict(list)
    for place, missing in fold.gaps.items():
        writes["HSET", names_of("").gaps] += (place, missing)
    for item in fold.folded:
        if isinstance(item, Poison):
            places[item.envelope["page"]] += item.position[:2]
            continue
        places[item.page] += (item.ms, item.seq)
        for relation, start, end in scratch_page.relations(item):
            writes["ZADD", names_of(item.page).relation(relation)] += (0, f"{start}\t{end}")
    for command, arguments in writes.items():
        for at in range(0, len(arguments), _WIDEST):
            yield (*command, *arguments[at : at + _WIDEST])
    for page, some in places.items() if not fold.is_archived else ():
        yield ("APPEND", names_of(page).positions, positions.pack(some))
    for entry, reason in fold.rejected:
        fields = entry_fields(entry)
        yield (
            "XADD", PageKeys(keys, "", checkpoint.build).rejected, entry[0], "reason", reason,
            "page", fields.get(b"page", b""), "subject", fields.get(b"subject", b""),
            "event", fields.get(b"event", b""),
        )  # fmt: skip
