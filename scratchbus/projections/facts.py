"""The facts of a scope: each is a document of its own, which holds the assertion and whether it was retracted."""

from __future__ import annotations

from scratchbus.domain.event import Event
from scratchbus.domain.fact_events import FactAsserted, FactRetracted
from scratchbus.domain.facts import Fact, Retraction
from scratchbus.projections.memory_document import create_document, update_document
from scratchbus.projections.projection import FoldError

PREFIX = "fact_"
"""The prefix of a fact's subject; the millisecond follows."""


def evolve(fact: Fact | None, event: Event) -> Fact | None:
    """Return a fact after an event; None once it is erased. The first retraction of a fact stays."""
    if isinstance(event, FactAsserted):
        fields = {name: getattr(event, name) for name in _ASSERTED}
        return create_document(Fact, event, id=event.subject, subject=event.about, source=event.by, **fields)
    if event.kind == "erased":
        return None
    if isinstance(event, FactRetracted):
        if fact is None:
            raise FoldError("fact_retracted of a fact that does not exist")
        retraction = Retraction(by=event.by, reason=event.reason, refuted=event.refuted, ms=event.ms, seq=event.seq)
        return update_document(fact, event, retraction=fact.retraction or retraction)
    return fact


_ASSERTED = ("relation", "object", "valid_at", "invalid_at", "confidence", "evidence", "source_text")
