"""The contexts that were rendered for a session or an agent: only their events are kept, without a document."""

from __future__ import annotations

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event

_PREFIX = "context_"


def subject_of(viewer: str) -> str:
    """Return the subject of the contexts of a viewer, `session:<id>` or `agent:<name>`."""
    return _PREFIX + viewer


def evolve(document: Remembered | None, event: Event) -> Remembered | None:
    """Return None: contexts have no document."""
    return None
