"""The parts of pages that this process's readers cache for later reads, in their immutable stored form.

A read caches the documents of the page, so that the next one transfers only those that have changed since, and what it
has folded in memory, so that the next one folds only newer events. The query script checks that they are still valid.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from scratchbus.eventlog.stored_documents import decode_row
from scratchbus.projections.stored_observation import StoredObservation

MAX_READS = 32
"""The number of pages of a shard whose documents are cached."""

MAX_FOLDS = 100
"""The number of pages of a shard for which a fold is cached."""

MAX_BYTES = 256 * 1024
"""The size of the documents, and of the fold, that are cached of a page."""


class CachedRead(NamedTuple):
    """The stored documents that a read of the open ones with this limit found, by id, and whether these were all.

    `checkpoint` and `tail` are stored texts of the engine. At a later checkpoint, the documents are the same except for
    those that events in between are about.
    """

    checkpoint: str = ""
    tail: str = ""
    limit: int = 0
    rows: Mapping[str, bytes] = {}
    is_end: bool = False


NO_READ = CachedRead()
"""The cached read of a page of which nothing is cached."""

Rows = Mapping[str, bytes | None]
"""Documents by subject; None for one that has left the page."""


class CachedFold(NamedTuple):
    """The result of folding a page's events after a checkpoint, up to this tail; no rows if only that is known.

    It is cached when a page was read twice behind the same checkpoint, and is valid for that checkpoint alone; the log
    must still have the last event of the fold. `checkpoint` and `tail` are stored texts of the engine.
    """

    checkpoint: str = ""
    tail: str = ""
    rows: Rows | None = None

    def documents(self, wanted: Collection[object] | None = None) -> dict[str, StoredObservation | None]:
        """Return the documents, or those of these subjects, decoded afresh."""
        rows = self.rows or {}
        subjects = rows.keys() if wanted is None else rows.keys() & wanted
        return {subject: decode_row(row) if (row := rows[subject]) else None for subject in subjects}


NO_FOLD = CachedFold()
"""The cached fold of a page that was not read yet."""
