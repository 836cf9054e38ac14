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
        fields: dict[str, object] = {"role": event.role, "task": event.task}
    elif isinstance(event, TurnsCompacted):
        fields = {"role": SUMMARY, "replaces": event.turns}
    else:
        return None if event.kind == "erased" else turn
    said = {"content": event.content, "tokens": event.tokens, "source": event.by}
    return create_document(Turn, event, id=event.subject, **said, **fields)
