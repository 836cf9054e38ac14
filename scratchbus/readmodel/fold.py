"""The fold of a chunk of the log, over the documents that it touches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from scratchbus.domain.event import Event
from scratchbus.engine.scripts import Command
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.raw_entries import RawEntry
from scratchbus.eventlog.stored_documents import UNREADABLE, decode_document, read_document
from scratchbus.projections.projection import UNFOLDABLE, Document, Store, damage, reason_of
from scratchbus.projections.subjects import IN_PLACE, SCRATCH_PAGE, is_over, is_remembered, projection_of

Key = tuple[str, str]
"""The page and the subject of a document."""

Documents = dict[Key, Document | None]
"""Documents by page and subject; None for missing ones."""

_BEGINNINGS = ("added", "note_added", "fact_asserted", "turn_appended", "turns_compacted")
"""The kinds of events that are always the first of their subject."""

_UNREADABLE = "the stored document before it cannot be read; run `scratchbus rebuild`"


@dataclass(slots=True)
class Fold:
    """The fold of a chunk of one shard's log over the documents it touches.

    Archived events get no positions in the history index, since its readers read the archive too. With a `store`, only
    documents stored there are folded. If `is_shown` during the fold, no document is ever modified: events make new
    ones; otherwise only loaded documents are left unmodified. `paged_in` has the commands that remove loaded
    documents from the index of paged-out ones.
    """

    shard: int
    is_archived: bool = False
    store: Store | None = None
    is_shown: bool = False
    documents: Documents = field(default_factory=dict)
    before: Documents = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    folded: list[Event | Poison] = field(default_factory=list)
    rejected: list[tuple[RawEntry, str]] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)
    paged_in: list[Command] = field(default_factory=list)
    unreadable: dict[Key, str] = field(default_factory=dict)

    def load(self, key: Key, row: bytes | None) -> None:
        """Take a stored document as it was before these events."""
        try:
            document = read_document(key[1], row) if row else None
        except UNREADABLE:
            document, self.unreadable[key] = decode_document(key[1], row or b""), _UNREADABLE
        self.documents[key] = document
        if self.store is None:  # a reader does not need it any more
            self.before[key] = document

    def apply(self, entry: RawEntry, item: Event | Poison) -> None:
        """Fold one entry. An event that cannot be folded is rejected, and marks its document as damaged."""
        projection = SCRATCH_PAGE if item.subject[:1].isdigit() else projection_of(item.subject)  # spares most calls
        if self.store not in (None, projection.store):
            return
        self.folded.append(item)
        key, reason = (item.page, item.subject), ""
        if isinstance(item, Poison):
            if key in self.documents:
                self.documents[key] = damage(self.documents[key], *item.position[:2])
            reason = item.reason
        else:
            before = self.documents.get(key)
            if projection is SCRATCH_PAGE and not self.is_shown and before is not self.before.get(key):
                projection = IN_PLACE
            try:
                self.documents[key] = projection.evolve(before, item)
            except UNFOLDABLE as error:
                self.documents[key], reason = damage(before, item.ms, item.seq), reason_of(error)
            if item.kind == "session_ended" and is_over(item):
                self._empty(key)
        reason = self.unreadable.pop(key, "") or reason
        if reason:
            self.rejected.append((entry, reason))

    def _empty(self, ended: Key) -> None:
        """Archive everything remembered on the page of an ended session, except the session itself."""
        self.emptied.add(ended[0])
        for key in self.documents:
            if key[0] == ended[0] and key != ended and is_remembered(key[1]):
                self.documents[key] = None


def needed(items: Iterable[Event | Poison]) -> dict[str, list[str]]:
    """Return, by page, the subjects whose documents must be loaded before these are folded."""
    keys: set[Key] = set()
    pages: dict[str, list[str]] = defaultdict(list)
    for item in items:
        key = item.page, item.subject
        if key in keys:
            continue
        keys.add(key)
        if isinstance(item, Poison) or item.kind not in _BEGINNINGS:
            pages[item.page].append(item.subject)
    return pages
