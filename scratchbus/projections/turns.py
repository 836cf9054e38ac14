"""The turns of a session and the summaries that replace some: each is a document of its own."""

from __future__ import annotations

from scratchbus.domain.conversation_events import TurnAppended, TurnsCompacted
from scratchbus.domain.conversations import SUMMARY, Turn
from scratchbus.domain.event import Event
from scratchbus.projections.memory_document import create_document

PREFIX = "turn_"
"""The prefix of a turn's subject; the millisecond follows."""


def evolve(turn: Turn | None, event: Event) -> Turn | None:
    """Return a turn after an event; None once it is erased."""
    if isinstance(event, TurnAppended):
        return create_document(
            Turn,
            event,
            id=event.subject,
            role=event.role,
            content=event.content,
            tokens=event.tokens,
            task=event.task,
            source=event.by,
        )
    if isinstance(event, TurnsCompacted):
        return create_document(
            Turn,
            event,
            id=event.subject,
            role=SUMMARY,
            content=event.content,
            tokens=event.tokens,
            replaces=event.turns,
            source=event.by,
        )
    return None if event.kind == "erased" else turn
