"""What a query of a page finds, and the moment of the past that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import Checkpoint
from scratchbus.readmodel.fold import Fold
from scratchbus.readmodel.local_fold import LocalFold


class QueryResult(NamedTuple):
    """A consistent read: the engine's time (ms), the stored documents found, and the fold of the events after them.

    `overlay` has the documents changed by these events, by subject; those of a cached fold are stored observations.
    `changed` has those that changed since a cached read, or since the parts before this one; their other documents were
    not read again. The read continues `below` a score. `stored` are the checkpoint and the tail as the engine stores
    them. `local_fold` is passed to the next query of the same read, so that it need not fold the same events again.
    """

    now: int
    rows: Sequence[bytes | None]
    fold: Fold
    overlay: dict[str, Any]
    is_end: bool
    below: str
    checkpoint: Checkpoint
    changed: dict[str, bytes | None] | None
    stored: tuple[str, str]
    local_fold: LocalFold | None = None


class PastState(Protocol):
    """A moment of the past, restored by undoing the later events of a page."""

    ms: int

    def undo(self, log: Log, page: str, tail: Position) -> Step[Mapping[str, Observation | None]]:
        """Return the earlier state of all observations with events from then to the tail; None if absent then."""
