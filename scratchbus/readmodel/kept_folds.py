"""Events that this process's readers have folded in memory, kept so that a read folds only newer ones.

A fold is kept when a page was read twice behind the same checkpoint, and is valid for that checkpoint alone. The query
script checks it: the log must still have the last event of the fold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.stored_documents import decode_row, encode_document
from scratchbus.projections.stored_observation import StoredObservation
from scratchbus.readmodel.fold import Fold

MOST_PAGES = 100
"""The number of pages of a shard for which a fold is kept."""

_MOST_BYTES = 256 * 1024  # of each of them

Rows = Mapping[str, bytes | None]
"""Documents by subject, in their immutable stored form; None for one that has left the page."""


class KeptFold(NamedTuple):
    """The result of folding a page's events after a checkpoint, up to this tail; no rows if only that is known.

    `checkpoint` and `tail` are stored texts of the engine.
    """

    checkpoint: str = ""
    tail: str = ""
    rows: Rows | None = None

    def documents(self, wanted: Collection[object] | None = None) -> dict[str, StoredObservation | None]:
        """Return the documents, or those of these subjects, decoded afresh."""
        rows = self.rows or {}
        subjects = rows.keys() if wanted is None else rows.keys() & wanted
        return {subject: decode_row(row) if (row := rows[subject]) else None for subject in subjects}

    def keep(self, keys: ShardKeys, page: str, tail: str, fold: Fold, *, is_held: bool) -> None:
        """Keep the result of a read behind the same checkpoint, on top of this fold if that `is_held`."""
        new = {
            subject: None if document is None else encode_document(document)
            for (_, subject), document in fold.documents.items()
        }
        rows = {**self.rows, **new} if is_held and self.rows else new
        is_large = sum(map(len, filter(None, rows.values()))) > _MOST_BYTES
        keys.folds[page] = NOTHING if is_large else KeptFold(self.checkpoint, tail, rows)


NOTHING = KeptFold()
"""The kept fold of a page that was not read yet."""
