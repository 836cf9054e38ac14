"""The part of recall's index that has the items of one page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from scratchbus.context.recall_index import RecallIndex
from scratchbus.context.recall_sources import IndexEntry, entry_of
from scratchbus.domain.document import Document
from scratchbus.domain.event import Event
from scratchbus.projections.subjects import is_over, is_remembered

_ITEM_BYTES: Final = 300  # approximate size of an item, without its text


class PageIndex:
    """One page's part of the index, which a `MemoryCache` holds.

    `size` is the approximate size of its items in bytes. `touched` are the subjects to read again; `is_taking` is set
    while someone reads them.
    """

    def __init__(self, index: RecallIndex) -> None:
        self._index = index
        self.page_number = index.open_page(self)
        self._sizes: dict[str, int] = {}  # of the items, by subject
        self.size = 0
        self.touched: dict[str, None] = {}
        self.is_over = self.is_taking = False

    @property
    def is_behind(self) -> bool:
        """Whether an event is not in the index yet."""
        return bool(self.touched or self.is_over or self.is_taking)

    def load(self, documents: Mapping[str, Document]) -> None:
        """Add some of the stored documents, in any order, possibly repeatedly."""
        self._put([entry for each in documents.values() if (entry := entry_of(each)) is not None])

    def loaded(self) -> None:
        """Do nothing: everything loaded is already indexed."""

    def evolve(self, event: Event) -> None:
        """Mark the subject of an event to be read again; the end of a session marks all of its memory."""
        if is_over(event):
            self.is_over = True
        else:
            self.touched[event.subject] = None

    def take(self) -> list[str]:
        """Return the subjects touched since the last call; if the session has ended, remove its memories."""
        self.is_taking = self.is_behind
        if self.is_over:
            self.is_over = False
            self._index.remove_memories(self.page_number)
            self._forget([subject for subject in self._sizes if is_remembered(subject)])
        touched, self.touched = list(self.touched), {}
        return touched

    def update(self, subjects: Collection[str], documents: Iterable[Document]) -> None:
        """Replace the items with these subjects by their current form."""
        entries = [entry for each in documents if (entry := entry_of(each)) is not None]
        gone = set(subjects) - {each.subject for each in entries}
        self._index.remove(self.page_number, gone)
        self._forget(gone)
        self._put(entries)

    def _put(self, entries: Sequence[IndexEntry]) -> None:
        self._index.put(self.page_number, entries)
        self._forget(each.subject for each in entries)
        sizes = {each.subject: _ITEM_BYTES + 2 * len(each.text) for each in entries}
        self._sizes |= sizes
        self.size += sum(sizes.values())

    def _forget(self, subjects: Iterable[str]) -> None:
        """Subtract the sizes of the items with these subjects, as far as they are in the index."""
        self.size -= sum(self._sizes.pop(subject, 0) for subject in subjects)
