"""The preferences of one scope in memory.

The caller feeds it events; it reads nothing itself. It is not thread-safe.
"""

from __future__ import annotations

from collections.abc import Mapping

from scratchbus.domain.event import Event
from scratchbus.domain.memories import Preference
from scratchbus.projections.preferences import PREFIX
from scratchbus.projections.table import PROJECTIONS

_BYTES = 1_500  # about what a preference takes, besides its text


class PreferenceList:
    """The preferences of a scope by subject, forgotten ones too."""

    def __init__(self) -> None:
        self._all: dict[str, Preference] = {}

    def load(self, documents: Mapping[str, Preference]) -> None:
        """Take some of the preferences that there are, in any order."""
        self._all.update(documents)

    def loaded(self) -> None:
        """Do nothing: all that was loaded is there."""

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(_BYTES + len(each.text) for each in self._all.values())

    def evolve(self, event: Event) -> None:
        """Fold an event; known events, and events that cannot follow the earlier ones, change nothing."""
        before = self._all.get(event.subject)
        if event.subject.startswith(PREFIX) and (before is None or before.seq < event.seq):
            after, _ = PROJECTIONS["preference"].fold(before, event)
            if isinstance(after, Preference):
                self._all[event.subject] = after

    def all(self) -> list[Preference]:
        """Return all, forgotten ones too, in the order in which they were first remembered."""
        return sorted(self._all.values(), key=lambda each: (each.added_seq, each.id))
