"""The files or texts of a page in memory, by path.

The caller feeds it events; it reads nothing itself. It is not thread-safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from scratchbus.domain.conversations import ScratchFile, Text
from scratchbus.domain.event import Event
from scratchbus.projections import files, texts
from scratchbus.projections.subjects import is_over, projection_of

_BYTES = 1_000  # approximate size of an entry without its text

Entry = ScratchFile | Text


class Directory:
    """The files or texts of a page, including deleted ones; `size` is their approximate size in bytes."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self.size = 0

    def load(self, documents: Mapping[str, Entry]) -> None:
        """Add some of the stored entries, by their subjects, in any order."""
        for id, entry in documents.items():
            self._put(id, entry)

    def loaded(self) -> None:
        """Do nothing: the loaded documents need no order."""

    def evolve(self, event: Event) -> None:
        """Fold an event; known events, and events that cannot follow the earlier ones, change nothing."""
        if is_over(event):
            for id in [id for id, entry in self._entries.items() if entry.seq < event.seq]:
                self._put(id, None)
        elif event.subject.startswith((files.PREFIX, texts.PREFIX)):
            before = self._entries.get(event.subject)
            if before is None or before.seq < event.seq:
                self._put(event.subject, projection_of(event.subject).fold(before, event)[0])

    def get(self, id: str) -> Entry | None:
        """Return the file or text with this subject, even if it was deleted."""
        return self._entries.get(id)

    def present(self) -> list[Entry]:
        """Return the files or texts that exist, by path."""
        return sorted((entry for entry in self._entries.values() if not entry.deleted), key=attrgetter("path"))

    def _put(self, id: str, entry: Entry | None) -> None:
        before = self._entries.pop(id, None)
        self.size += _size(entry) - _size(before)
        if entry is not None:
            self._entries[id] = entry


def _size(entry: Entry | None) -> int:
    if entry is None:
        return 0
    return _BYTES + (len(entry.content) if isinstance(entry, Text) else 0)
