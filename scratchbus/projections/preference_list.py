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
    """The preferences of a scope by subject, including forgotten ones."""

    def __init__(self) -> None:
        self._all: dict[str, Preference] = {}

    def load(self, documents: Mapping[str, Preference]) -> None:
        """Add some of the stored preferences, in any order."""
        self._all.update(documents)

    def loaded(self) -> None:
        """Do nothing: the loaded documents need no order."""

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return sum(_BYTES + len(each.text) for each in self._all.values())

    def evolve(self, event: Event) -> None:
        """Fold an event; known events, and events that cannot follow the earlier ones, change nothing."""
        before = self._all.get(event.subject)
        if event.subject.startswith(PREFIX) and (before is None or before.seq < event.seq):
            after, _ = PROJECTIONS["preference"].fold(before, event)
            if isinstance(after, Preference):
                self._all[event.subject] = after

    def all(self) -> list[Preference]:
        """Return all preferences, including forgotten ones, in the order in which they were first remembered."""
        return sorted(self._all.values(), key=lambda each: (each.added_seq, each.id))
