"""The session itself: its parent, its children, and whether it has ended."""

from __future__ import annotations

from scratchbus.domain.event import Event
from scratchbus.domain.memories import Session
from scratchbus.domain.memory_events import SessionEnded, SessionSpawned, SessionStarted
from scratchbus.domain.values import SESSION_PAGES
from scratchbus.projections.memory_document import create_document, update_document

SUBJECT = "session"


def evolve(session: Session | None, event: Event) -> Session | None:
    """Return a session after an event. The first event about it creates it."""
    changes: dict[str, object] = {}
    if isinstance(event, SessionSpawned):
        children = session.children if session else []
        changes = {"children": children if event.session in children else [*children, event.session]}
    elif isinstance(event, SessionStarted):
        changes = {"parent": event.parent, "fork": event.fork}
    elif isinstance(event, SessionEnded):
        changes = {"ended": True}
    else:
        return session
    if session is None:
        changes = {"id": event.page.removeprefix(SESSION_PAGES), "children": [], **changes}
        return create_document(Session, event, **changes)
    return update_document(session, event, **changes)
