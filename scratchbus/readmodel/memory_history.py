"""The events about an agent's memory, and the state they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from scratchbus.domain.event import Event
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.memories import Remembered
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.projections import session
from scratchbus.projections.table import is_over, projection_of
from scratchbus.readmodel.history import history
from scratchbus.readmodel.scope import Core


def folded(events: Sequence[Event], subject: str, until: Position | None = None) -> Remembered | None:
    """Return a subject after these events, or after those up to a position; None if it is gone.

    The event that ended its session, which is about another subject, removes it.
    """
    projection = projection_of(subject)
    document: Remembered | None = None
    for event in events:
        if until is None or event.position <= until:
            document = None if event.subject != subject else projection.fold(document, event)[0]
    return document


def history_of(core: Core, page: str, subject: str) -> Step[list[AnyEvent]]:
    """Return the events about a subject, oldest first, and the one that ended its session, if any."""
    events = yield from history(core.log, page, subject)
    if page.startswith(session.PAGES) and subject != session.SUBJECT:
        events += [event for event in (yield from history(core.log, page, session.SUBJECT)) if is_over(event)]
    return sorted(events, key=attrgetter("position"))  # it may have been erased after the session ended
