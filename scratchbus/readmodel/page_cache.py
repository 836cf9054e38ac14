"""The parts of pages that this process's readers keep, in their immutable stored form, for later reads.

A read keeps the documents of the page, so that the next one transfers only those that have changed since, and what it
has folded in memory, so that the next one folds only newer events. The query script checks that they are still valid.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.stored_documents import decode_row, encode_document
from scratchbus.projections.stored_observation import StoredObservation
from scratchbus.readmodel.fold import Fold

MOST_READS = 32
"""The number of pages of a shard whose documents are kept."""

MOST_FOLDS = 100
"""The number of pages of a shard for which a fold is kept."""

MOST_BYTES = 256 * 1024
"""The size of the documents, and of the fold, that are kept of a page."""


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

    def arguments(self, limit: int) -> tuple[str, str, str]:
        """Return what the query script needs to know of it for a read with this limit."""
        if not self.is_end and self.limit != limit:
            return "", "", ""
        return self.checkpoint, self.tail, "1" if self.is_end else ""

    def updated(self, changed: Mapping[str, bytes | None]) -> list[bytes]:
        """Return its documents after changes, with None for those to leave out; not in order if there are any."""
        return [*filter(None, ({**self.rows, **changed} if changed else self.rows).values())]

    def keep(self, keys: ShardKeys, page: str) -> None:
        """Keep it for the next read of the page, unless it is too large."""
        reads = keys.reads
        if page not in reads and len(reads) >= MOST_READS:
            reads.clear()
        reads[page] = self if sum(map(len, self.rows.values())) <= MOST_BYTES else NO_READ


NO_READ = CachedRead()
"""The kept read of a page of which nothing is kept."""

Rows = Mapping[str, bytes | None]
"""Documents by subject; None for one that has left the page."""


class CachedFold(NamedTuple):
    """The result of folding a page's events after a checkpoint, up to this tail; no rows if only that is known.

    It is kept when a page was read twice behind the same checkpoint, and is valid for that checkpoint alone; the log
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

    def keep(self, keys: ShardKeys, page: str, checkpoint: str, tail: str, fold: Fold, *, is_held: bool) -> None:
        """Keep the result of the next read, on top of this fold if that `is_held`.

        Keeps only its position if it is the first read at its checkpoint.
        """
        if not is_held and (not self.tail or self.checkpoint != checkpoint):
            if len(keys.folds) >= MOST_FOLDS:
                keys.folds.clear()
            keys.folds[page] = CachedFold(checkpoint, tail)
            return
        new = {
            subject: None if document is None else encode_document(document)
            for (_, subject), document in fold.documents.items()
        }
        rows = {**self.rows, **new} if is_held and self.rows else new
        is_large = sum(map(len, filter(None, rows.values()))) > MOST_BYTES
        keys.folds[page] = NO_FOLD if is_large else CachedFold(self.checkpoint, tail, rows)


NO_FOLD = CachedFold()
"""The kept fold of a page that was not read yet."""
