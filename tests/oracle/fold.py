"""The fold of a raw log, from its first event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from scratchbus import Observation
from scratchbus.domain.document import Remembered
from scratchbus.eventlog.codec import Poison, decode_entry
from scratchbus.eventlog.raw_entries import RawEntry
from scratchbus.projections import subjects
from scratchbus.projections.projection import Document, damage


@dataclass
class Folded:
    """The state that follows from the log of a shard, and what is wrong with the log."""

    pages: dict[str, dict[str, Document | None]] = field(default_factory=lambda: defaultdict(dict))
    """The documents of each page, by subject; None for one that was cleared or erased."""
    broken: dict[tuple[str, str], str] = field(default_factory=dict)
    """By page and subject: why its events do not follow from one another."""
    poison: list[str] = field(default_factory=list)
    """The stream ids of entries that are not events."""

    def observations(self) -> dict[tuple[str, str], Observation]:
        """Return the observations that exist, by page and id."""
        return {key: document for key, document in self._existing() if isinstance(document, Observation)}

    def memories(self) -> dict[tuple[str, str], Remembered]:
        """Return what agents remember, by page and subject."""
        return {key: document for key, document in self._existing() if isinstance(document, Remembered)}

    def _existing(self) -> Iterable[tuple[tuple[str, str], Document]]:
        for page, documents in self.pages.items():
            for subject, document in documents.items():
                if document is not None:
                    yield (page, subject), document


def fold(log: Iterable[RawEntry], shard: int, *, page: str | None = None) -> Folded:
    """Fold the entries of a shard's log, or of one page of it, from nothing."""
    folded, last = Folded(), dict[tuple[str, str], str]()
    for entry in log:
        try:
            event = decode_entry(entry, shard)
        except Poison as poison:
            if page in (None, poison.page):
                documents, at = folded.pages[poison.page], poison.position
                documents[poison.subject] = damage(documents.get(poison.subject), at.ms, at.seq)
                folded.poison.append(at.stream_id)
            continue
        if page not in (None, event.page):
            continue
        key = event.page, event.subject
        before, last[key] = last.get(key, ""), event.position.stream_id
        if event.prev != before:
            folded.broken[key] = f"{event.position} says that {event.prev!r} came before, not {before!r}"
        if problem := subjects.fold_event(folded.pages[event.page], event):
            folded.broken[key] = f"{event.position}: {problem}"
    return folded
