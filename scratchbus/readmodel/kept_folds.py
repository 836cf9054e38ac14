"""What a process keeps of the events that its readers folded in memory, so that a read folds only those since.

A fold is kept when a page was behind the same checkpoint twice, and holds upon that checkpoint alone. The query script
tells whether it still does: the log has to have the event that it ended with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.eventlog.stored_documents import decode_row, encode_document
from scratchbus.projections.stored_observation import StoredObservation
from scratchbus.readmodel.fold import Fold

_MOST_PAGES, _MOST_BYTES = 100, 256 * 1024  # of a shard, and of each of them

Rows = Mapping[str, bytes | None]
"""Documents by subject, in their stored form, which nobody changes; None for what is off the page."""


class KeptFold(NamedTuple):
    """What a page's events behind a checkpoint made of its documents, up to this tail; no rows if only that is known.

    `checkpoint` and `tail` are as the engine has them.
    """

    checkpoint: str = ""
    tail: str = ""
    rows: Rows | None = None

    @classmethod
    def of(cls, keys: ShardKeys, page: str) -> KeptFold:
        """Return what is kept of a page."""
        found = keys.folds.get(page, _NONE)
        return found if isinstance(found, cls) else _NONE

    @property
    def basis(self) -> tuple[str, str]:
        """The checkpoint and the tail that the script compares; no tail while no fold is kept."""
        return (self.checkpoint, self.tail) if self.rows is not None else ("", "")

    def documents(self, wanted: Collection[object] | None = None) -> dict[str, StoredObservation | None]:
        """Return the documents, or those of these subjects, each decoded anew."""
        rows = self.rows or {}
        subjects = rows.keys() if wanted is None else rows.keys() & wanted
        return {subject: decode_row(row) if (row := rows[subject]) else None for subject in subjects}

    def keep(self, keys: ShardKeys, page: str, checkpoint: bytes, tail: bytes, fold: Fold, *, is_held: bool) -> None:
        """Keep what a read folded, on top of this if that `is_held`."""
        now = text_of(checkpoint)
        if is_held or (self.tail and now == self.checkpoint):
            new = {
                subject: None if document is None else encode_document(document)
                for (_, subject), document in fold.documents.items()
            }
            rows = {**self.rows, **new} if is_held and self.rows else new
            is_large = sum(map(len, filter(None, rows.values()))) > _MOST_BYTES
            kept = _NONE if is_large else KeptFold(now, text_of(tail), rows)
        else:
            kept = KeptFold(now, text_of(tail))
        if page not in keys.folds and len(keys.folds) >= _MOST_PAGES:
            keys.folds.clear()
        keys.folds[page] = kept


_NONE = KeptFold()
