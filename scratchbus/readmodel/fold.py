"""The fold of a stretch of the log, over the documents that it touches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pydantic import ValidationError

from scratchbus.domain.events import Event
from scratchbus.domain.memories import Remembered
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Command
from scratchbus.eventlog.codec import (
    Poison,
    RawEntry,
    decode_document,
    decode_entry,
    decode_remembered,
    read_document,
    read_remembered,
)
from scratchbus.projections import memory, scratch_page
from scratchbus.projections.memory import Memory, memory_of

Documents = dict[tuple[str, str], Observation | None]
"""Observations by page and id; None for one that is not on the page."""

Remembering = dict[tuple[str, str], Remembered | None]
"""What agents remember, by page and subject; None for what is not there."""

_BEGINNINGS = ("added", "note_added")
"""The kinds of what is always the first event of its subject."""

_UNREADABLE = "the stored document before it cannot be read; run `scratchbus rebuild`"


@dataclass(slots=True)
class Fold:
    """The fold of a stretch of one shard's log over the documents it touches.

    What is archived has no positions in the history index: who reads that reads the archive. `paged_in` takes those
    documents out of the index of what is paged out that were, and are loaded all the same.
    """

    shard: int
    is_archived: bool = False
    documents: Documents = field(default_factory=dict)
    before: Documents = field(default_factory=dict)
    remembered: Remembering = field(default_factory=dict)
    remembered_before: Remembering = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    folded: list[Event | Poison] = field(default_factory=list)
    rejected: list[tuple[RawEntry, str]] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)
    paged_in: list[Command] = field(default_factory=list)
    unreadable: dict[tuple[str, str], str] = field(default_factory=dict)

    def load(self, key: tuple[str, str], row: bytes | None) -> None:
        """Take a document as it was before the stretch."""
        if memory_of(key[1]) is None:
            try:
                document = read_document(row) if row else None
            except ValidationError:
                document, self.unreadable[key] = decode_document(row or b""), _UNREADABLE
            self.documents[key] = self.before[key] = document
            return
        try:
            remembered = read_remembered(key[1], row) if row else None
        except ValidationError:
            remembered, self.unreadable[key] = decode_remembered(key[1], row or b""), _UNREADABLE
        self.remembered[key] = self.remembered_before[key] = remembered

    def is_loaded(self, key: tuple[str, str]) -> bool:
        """Say whether a document was taken, or made here."""
        return key in self.documents or key in self.remembered

    def apply(self, entry: RawEntry, item: Event | Poison) -> None:
        """Fold one entry. What cannot be folded is set aside and marks its document as damaged."""
        self.folded.append(item)
        if isinstance(item, Poison):
            key = item.envelope["page"], item.envelope["subject"]
            self._damage(key, item.position)
            reason = item.reason
        elif (its := memory_of(item.subject)) is not None:
            key = item.page, item.subject
            reason = self._remember(key, item, its)
        else:
            key = item.page, item.subject
            self.documents[key], reason = scratch_page.fold(self.documents.get(key), item)
        reason = reason or self.unreadable.pop(key, "")
        if reason:
            self.rejected.append((entry, reason))

    def _remember(self, key: tuple[str, str], event: Event, its: Memory) -> str:
        """Fold an event about what an agent remembers; return why it could not be, if so."""
        self.remembered[key], reason = memory.fold(self.remembered.get(key), event, its)
        if memory.is_over(event):
            self.emptied.add(event.page)
            for other in self.remembered:
                if other[0] == event.page and other != key:
                    self.remembered[other] = None
        return reason

    def _damage(self, key: tuple[str, str], at: Position) -> None:
        document, remembered = self.documents.get(key), self.remembered.get(key)
        if document is not None and document.seq < at.seq:
            self.documents[key] = scratch_page.damage(document, at.ms, at.seq)
        if remembered is not None and remembered.seq < at.seq:
            self.remembered[key] = memory.damage(remembered, at.ms, at.seq)


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
        if kind not in _BEGINNINGS:
            pages[page].append(subject)
    return pages
