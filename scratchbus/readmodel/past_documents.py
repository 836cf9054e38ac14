"""The documents of a page at a position, folded from its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scratchbus.domain.position import START, Position
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.codec import Poison, decode_item
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.raw_entries import entry_position
from scratchbus.eventlog.reader import read
from scratchbus.projections.subjects import fold_event, is_remembered


def documents_at(
    log: Log, page: str, end: Position, is_wanted: Callable[[str], bool] = lambda subject: True
) -> Step[dict[str, Any]]:
    """Return the wanted documents of a page at a position, by subject; None for deleted ones.

    Raises PositionLost.
    """
    documents: dict[str, Any] = {}
    (cursor,) = yield from cursors(log, START._replace(shard=end.shard), [page])
    while cursor.position < end and (chunks := (yield from read(log, [cursor]))):
        for entry in chunks[0][1]:
            if entry_position(entry, end.shard) <= end:
                event = decode_item(entry, end.shard)
                if not isinstance(event, Poison) and event.page == page and is_wanted(event.subject):
                    fold_event(documents, event)
    return documents


def memories_at(log: Log, page: str, end: Position) -> Step[dict[str, Any]]:
    """Return all memories of a page at a position, by subject. Raises PositionLost."""
    return documents_at(log, page, end, is_remembered)
