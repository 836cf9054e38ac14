"""The contexts that were rendered for a session or an agent: only their events are kept, without a document."""

from __future__ import annotations

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event


def subject_of(session: str | None, agent: str) -> str:
    """Return the subject of the contexts of a session or, without one, of an agent."""
    return f"context_agent:{agent}" if session is None else f"context_session:{session}"


def evolve(document: Remembered | None, event: Event) -> Remembered | None:
    """Return None: contexts have no document."""
    return None
