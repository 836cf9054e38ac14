"""Fold a past page from its events: from the beginning, or from the last snapshot before that moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import compress
from operator import itemgetter
from typing import Any

from scratchbus.domain.checks import check_limit
from scratchbus.domain.event import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import START, Position
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.codec import AT_ONCE, Decoded, Poison, decode_bodies, decode_items
from scratchbus.eventlog.cursor import Cursor, cursors
from scratchbus.eventlog.gaps import count_all_erased
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.position_at import event_id_at
from scratchbus.eventlog.raw_entries import (
    LAYOUT,
    RawEntry,
    entry_id,
    entry_numbers,
    entry_position,
    entry_values,
    text_of,
    texts_of,
)
from scratchbus.eventlog.reader import read
from scratchbus.eventlog.stored_documents import encode_document
from scratchbus.projections.filters import Filter, matching
from scratchbus.projections.folded_changes import CHANGES
from scratchbus.projections.page_in_memory import PageInMemory
from scratchbus.projections.projection import UNFOLDABLE, damage
from scratchbus.projections.scratch_page import as_observation
from scratchbus.projections.stored_observation import AnyObservation, StoredObservation, change_in_place
from scratchbus.projections.subjects import IN_PLACE
from scratchbus.readmodel import snapshots
from scratchbus.readmodel.additions import added
from scratchbus.readmodel.gc_pause import with_gc_paused
from scratchbus.readmodel.rebuild import Progress
from scratchbus.readmodel.snapshots import OpenSnapshot, Snapshot
from scratchbus.timetravel.cut import Cut

Documents = dict[str, AnyObservation]
"""Observations by id. Those which nothing has changed since they were added, or stored, are in their stored form."""

_SUBJECT, _KIND, _TYPE, _PAGE = map(LAYOUT.index, (b"subject", b"kind", b"type", b"page"))
_CHANGES: dict[bytes, Any] = {b"added": added} | {kind.encode(): change for kind, change in CHANGES.items()}
"""The kinds of events that are folded without building the event, each with its function."""
_page_and_name, _values = itemgetter(2 * _PAGE, 2 * _PAGE + 1), itemgetter(1)
_DENSE = 3  # a page that has one of so many events is read with the others: the engine is quicker at it


@dataclass(slots=True)
class FoldedPage:
    """A past page, in memory; see `Reads`."""

    page: str
    in_memory: PageInMemory

    def get(self, ids: list[str]) -> Step[dict[str, Observation]]:
        """See `Reads`."""
        yield from ()
        found = {id: self.in_memory.get(id) for id in ids}
        return {id: each for id, each in found.items() if each is not None}

    def active(self, limit: int | None) -> Step[list[Observation]]:
        """See `Reads`."""
        yield from ()
        check_limit(limit)
        return self.in_memory.active(limit)

    def search(self, criteria: Filter, limit: int | None, below_seq: int | None) -> Step[list[Observation]]:
        """See `Reads`."""
        yield from ()
        return matching(self.in_memory, criteria, limit, below_seq)

    def added_seq_of(self, id: str) -> Step[int | None]:
        """See `Reads`."""
        found = (yield from self.get([id])).get(id)
        return None if found is None else found.added_seq


def fold_page(
    log: Log, names: PageKeys, cut: Cut, base: Snapshot | None, share: float, progress: Progress | None
) -> Step[Documents]:
    """Fold a page's events up to a moment; write a snapshot if it took long. `share` is its share of the log's events.

    Raises PositionLost, LogRewound, LogGap or CodeTooOld.
    """
    end = cut.position
    erased = yield from count_all_erased(log.keys(end.shard))
    stored = (yield from snapshots.load(names, base)) if base else []
    start = base.position if base and stored is not None else START._replace(shard=end.shard)
    documents: Documents = {each.id: each for each in stored or ()}
    (cursor,) = yield from cursors(log, start, [names.page])
    if share * _DENSE >= 1:
        cursor.page = ""
    collector = OpenSnapshotCollector()
    count = yield from fold_events(log, names.page, cursor, end, documents, progress, collector)
    if snapshots.is_due(count, len(documents)):
        yield from _store_snapshot(log, names, end, documents, erased)
    yield from snapshots.store_open(log.keys(end.shard), names, collector.snapshots, erased)
    return documents


class OpenSnapshotCollector:
    """Snapshots of the open observations, written during a long fold so that the next one is short.

    It follows which ones are open, since looking at all documents for each snapshot takes time in the square of them.
    """

    def __init__(self) -> None:
        self.snapshots: list[OpenSnapshot] = []
        self._count = 0
        self._open: dict[str, None] | None = None

    def collect(self, last: RawEntry, on_page: list[RawEntry], count: int, shard: int, documents: Documents) -> None:
        """Write a snapshot after an entry, if it is due.

        The page has had `count` events, of which the last are `on_page`.
        """
        changed = (
            documents
            if self._open is None
            else dict.fromkeys(text_of(entry_values(entry)[_SUBJECT]) for entry in on_page)
        )
        self._open = self._open or {}
        for id in changed:
            document = documents.get(id)
            if document is not None and document.status_class == "open":
                self._open[id] = None
            else:
                self._open.pop(id, None)
        if snapshots.is_open_due(count - self._count, len(self._open)):
            self._count = count
            rows = [encode_document(documents[id]) for id in self._open]
            self.snapshots.append(OpenSnapshot(entry_position(last, shard), entry_id(last), rows))


def fold_events(
    log: Log,
    page: str,
    cursor: Cursor,
    end: Position,
    documents: Documents,
    progress: Progress | None = None,
    collector: OpenSnapshotCollector | None = None,
    reopened: set[str] | None = None,
) -> Step[int]:
    """Fold the events of a page after a cursor, up to a position, into documents; return their number.

    `reopened` collects the subjects that were reopened but are not among the documents.
    """
    name, start, count = page.encode(), cursor.position, 0
    while cursor.position < end and (chunks := (yield from read(log, [cursor]))):
        entries = chunks[0][1]
        if cursor.position > end:
            entries = [entry for entry in entries if entry_position(entry, end.shard) <= end]
        page_entries = _entries_on_page(entries, name)
        for at in range(0, len(page_entries), AT_ONCE):
            with_gc_paused(partial(_apply_all, documents, page, page_entries[at : at + AT_ONCE], end.shard, reopened))
        count += len(page_entries)
        if collector is not None and page_entries:
            collector.collect(entries[-1], page_entries, count, end.shard, documents)
        if progress is not None:
            progress(min(cursor.position.seq, end.seq) - start.seq, end.seq - start.seq)
    return count


def _apply_all(documents: Documents, page: str, entries: list[RawEntry], shard: int, reopened: set[str] | None) -> None:
    """Fold the events of a page. Most add or change an observation, and are folded without building an event."""
    decoded = decode_bodies(entries, shard)
    changes = [
        None if isinstance(body, Exception) else _CHANGES.get(kind)
        for kind, body in zip(decoded.columns[_KIND], decoded.bodies, strict=True)
    ]
    others = _others(entries, decoded, changes, shard) if None in changes else iter(())
    fields: Any
    subjects, types = texts_of(decoded.columns[_SUBJECT]), texts_of(decoded.columns[_TYPE])
    for subject, type, fields, change, ms, seq in zip(
        subjects, types, decoded.bodies, changes, *entry_numbers(entries), strict=True
    ):
        try:
            if change is None:
                apply(documents, next(others))
            elif change is added:
                documents[subject] = added(subject, page, type, fields, ms, seq, shard)
            elif (document := documents.get(subject)) is not None:
                fields.ms = ms
                if isinstance(document, StoredObservation):
                    change_in_place(document, change, fields, ms, seq)
                else:
                    changed, values = change(document, fields), document.__dict__
                    values.update(changed)
                    values["version"] += 1
                    values["ms"], values["seq"] = ms, seq
            elif reopened is not None and getattr(fields, "status_class", None) == "open":
                reopened.add(subject)
        except UNFOLDABLE:
            apply(documents, Poison({"subject": subject, "ms": ms, "seq": seq, "shard": shard}, ""))


def _others(entries: list[RawEntry], decoded: Decoded, changes: list[Any], shard: int) -> Iterator[Event | Poison]:
    """Return the events of the entries that have no change; Poison for those that are not events."""
    is_other = [change is None for change in changes]
    columns = [[*compress(column, is_other)] for column in decoded.columns]
    bodies = [*compress(decoded.bodies, is_other)]
    items = decode_items([*compress(entries, is_other)], shard, Decoded(columns, bodies))
    return (item for _, item in items)


def _store_snapshot(log: Log, names: PageKeys, at: Position, documents: Documents, erased: int) -> Step[None]:
    rows = [*documents.values()]
    packed = [
        snapshots.pack([encode_document(each) for each in rows[start : start + snapshots.PART]])
        for start in range(0, len(rows), snapshots.PART)
    ]
    snapshot = Snapshot(at, len(rows), len(packed))
    yield from snapshots.store(log.keys(at.shard), names, snapshot, (yield from event_id_at(log, at)), packed, erased)


def _entries_on_page(entries: list[RawEntry], page: bytes) -> list[RawEntry]:
    """Return the entries of a page; mostly all are."""
    try:
        found = [*map(_page_and_name, map(_values, entries))]
    except IndexError:  # someone wrote one by hand
        found = []
    if found.count((b"page", page)) == len(entries):
        return entries
    return [entry for entry in entries if entry_values(entry)[_PAGE] == page]


def apply(documents: Documents, item: Event | Poison) -> None:
    """Fold one event like a projector: an event that cannot be folded marks its document as damaged.

    The documents belong to this fold alone, and are changed in place.
    """
    document = documents.get(item.subject)
    before = None if document is None else as_observation(document)
    if isinstance(item, Poison):
        after = damage(before, *item.position[:2])
    else:
        after, _ = IN_PLACE.fold(before, item)
    if after is None:
        documents.pop(item.subject, None)
    else:
        documents[item.subject] = after
