"""The memories of one page in memory: their documents by subject, kept current by the page's events.

The caller feeds in the events; nothing here reads the log. It is not thread-safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import ClassVar, Generic, TypeVar

from scratchbus.domain.conversations import ScratchFile, Text
from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.frozen import freeze
from scratchbus.domain.memories import Preference
from scratchbus.projections import files, preferences, texts
from scratchbus.projections.subjects import is_over, projection_of

D = TypeVar("D", bound=Remembered)


class MemoryIndex(Generic[D]):
    """The documents whose subjects begin with one of the `prefixes`; `size` is their approximate size in bytes."""

    prefixes: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self._documents: dict[str, D] = {}
        self._unsorted: dict[str, D] = {}
        self.size = 0

    def load(self, documents: Mapping[str, D]) -> None:
        """Take some of the stored documents, by their subjects, in any order; `loaded` adds them."""
        self._unsorted.update(documents)

    def loaded(self) -> None:
        """Add the loaded documents in the order in which they began; called before the first event."""
        documents, self._unsorted = self._unsorted, {}
        for subject in sorted(documents, key=lambda each: documents[each].added_seq):
            self._put(subject, documents[subject])

    def evolve(self, event: Event) -> None:
        """Fold an event; known events, and events that cannot follow the earlier ones, change nothing."""
        if is_over(event):
            for subject in [id for id, document in self._documents.items() if document.seq < event.seq]:
                self._put(subject, None)
        elif event.subject.startswith(self.prefixes):
            before = self._documents.get(event.subject)
            if before is None or before.seq < event.seq:
                self._put(event.subject, projection_of(event.subject).fold(before, event)[0])

    def _put(self, subject: str, document: D | None) -> None:
        """Replace a document; None stands for one that does not exist."""
        before = self._documents.pop(subject, None)
        if before is not None:
            self.size -= self._size_of(before)
        if document is not None:
            self.size += self._size_of(document)
            self._documents[subject] = freeze(document)

    def _size_of(self, document: D) -> int:
        raise NotImplementedError


class PreferenceList(MemoryIndex[Preference]):
    """The preferences of a scope, including forgotten ones."""

    prefixes = (preferences.PREFIX,)

    def all(self) -> list[Preference]:
        """Return all preferences, including forgotten ones, in the order in which they were first remembered."""
        return sorted(self._documents.values(), key=attrgetter("added_seq", "id"))

    def _size_of(self, document: Preference) -> int:
        return 1_500 + len(document.text)


class Directory(MemoryIndex[ScratchFile | Text]):
    """The files of a session or the texts of a scope, by path, including deleted ones."""

    prefixes = (files.PREFIX, texts.PREFIX)

    def get(self, subject: str) -> ScratchFile | Text | None:
        """Return the file or text with this subject, even if it was deleted."""
        return self._documents.get(subject)

    def present(self) -> list[ScratchFile | Text]:
        """Return the files or texts that exist, by path."""
        return sorted((each for each in self._documents.values() if not each.deleted), key=attrgetter("path"))

    def _size_of(self, document: ScratchFile | Text) -> int:
        return 1_000 + (len(document.content) if isinstance(document, Text) else 0)
