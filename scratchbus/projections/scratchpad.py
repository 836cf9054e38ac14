"""The scratchpad of an agent: one text, kept between runs."""

from __future__ import annotations

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.memory_events import RunEnded, ScratchpadWritten
from scratchbus.domain.page_events import Erased
from scratchbus.projections.memory_document import create_document, upsert_document

SUBJECT = "scratchpad"


class Pad(Remembered):
    """The content of a scratchpad."""

    content: str = ""


def evolve(document: Pad | None, event: Event) -> Pad | None:
    """Return the scratchpad after an event; the end of a run is in its history, but does not change its content."""
    if isinstance(event, Erased):
        return create_document(Pad, event, version=event.version)
    if isinstance(event, ScratchpadWritten):
        return upsert_document(Pad, document, event, content=event.content)
    if isinstance(event, RunEnded):
        return upsert_document(Pad, document, event)
    return document
