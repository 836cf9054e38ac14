"""Errors for several callers whose work was done together."""

from __future__ import annotations

from scratchbus.domain.position import Position
from scratchbus.errors import EngineError, NotReplicated


def copied(error: Exception, event_id: str | None, position: Position | None = None) -> Exception:
    """Return a copy of an error that names one caller's event: several callers must not raise the same error."""
    if isinstance(error, NotReplicated):
        return NotReplicated(error.copies, error.wanted, event_id)
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    if isinstance(copy, EngineError) and event_id is not None:
        if position is not None:
            copy.written(event_id, position, None)
        elif copy.event_id is not None:
            copy.event_id = event_id
            if copy.advice:
                copy.in_doubt()
    return copy
