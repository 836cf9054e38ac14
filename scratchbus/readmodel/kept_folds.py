"""What a process keeps of the events that its readers folded in memory, so that a read folds only those since.

A fold is kept when a page was behind the same checkpoint twice, and holds upon that checkpoint alone. The query script
tells whether it still does: the log has to have the event that it ended with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.stored_documents import decode_row, encode_document
from scratchbus.projections.stored_observation import StoredObservation
from scratchbus.readmodel.fold import Fold

MOST_PAGES = 100
"""Of how many pages of a shard something is kept."""

_MOST_BYTES = 256 * 1024  # of each of them

Rows = Mapping[str, bytes | None]
"""Documents by subject, in their stored form, which nobody changes; None for what is off the page."""


class KeptFold(NamedTuple):
    """What a page's events behind a checkpoint made of its documents, up to this tail; no rows if only that is known.

    `checkpoint` and `tail` are as the engine has them.
    """

    checkpoint: str = ""
    tail: str = ""
    rows: Rows | None = None

    def documents(self, wanted: Collection[object] | None = None) -> dict[str, StoredObservation | None]:
        """Return the documents, or those of these subjects, each decoded anew."""
        rows = self.rows or {}
        subjects = rows.keys() if wanted is None else rows.keys() & wanted
        return {subject: decode_row(row) if (row := rows[subject]) else None for subject in subjects}

    def keep(self, keys: ShardKeys, page: str, tail: str, fold: Fold, *, is_held: bool) -> None:
        """Keep what a read folded behind the same checkpoint, on top of this if that `is_held`."""
        new = {
            subject: None if document is None else encode_document(document)
            for (_, subject), document in fold.documents.items()
        }
        rows = {**self.rows, **new} if is_held and self.rows else new
        is_large = sum(map(len, filter(None, rows.values()))) > _MOST_BYTES
        keys.folds[page] = NOTHING if is_large else KeptFold(self.checkpoint, tail, rows)


NOTHING = KeptFold()
"""What is kept of a page that was not read yet."""
