"""The preferences of one scope in memory.

The caller feeds it events; it reads nothing itself. It is not thread-safe.
"""

from __future__ import annotations

from collections.abc import Mapping

from scratchbus.domain.event import Event
from scratchbus.domain.memories import Preference
from scratchbus.projections.preferences import PREFIX
from scratchbus.projections.table import PROJECTIONS

_BYTES = 1_500  # approximate size of a preference without its text


class PreferenceList:
    """The preferences of a scope, including forgotten ones; `size` is their approximate size in bytes."""

    def __init__(self) -> None:
        self._all: dict[str, Preference] = {}
        self.size = 0

    def load(self, documents: Mapping[str, Preference]) -> None:
        """Add some of the stored preferences, in any order."""
        for subject, preference in documents.items():
            self._put(subject, preference)

    def loaded(self) -> None:
        """Do nothing: the loaded documents need no order."""

    def evolve(self, event: Event) -> None:
        """Fold an event; known events, and events that cannot follow the earlier ones, change nothing."""
        before = self._all.get(event.subject)
        if event.subject.startswith(PREFIX) and (before is None or before.seq < event.seq):
            after, _ = PROJECTIONS["preference"].fold(before, event)
            if isinstance(after, Preference):
                self._put(event.subject, after)

    def all(self) -> list[Preference]:
        """Return all preferences, including forgotten ones, in the order in which they were first remembered."""
        return sorted(self._all.values(), key=lambda each: (each.added_seq, each.id))

    def _put(self, subject: str, preference: Preference) -> None:
        before = self._all.get(subject)
        self.size += len(preference.text) + (_BYTES if before is None else -len(before.text))
        self._all[subject] = preference
