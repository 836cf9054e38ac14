"""The events about an agent's memory, and the state they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.position import Position
from scratchbus.domain.values import SESSION_PAGES
from scratchbus.engine.steps import Step
from scratchbus.eventlog.cursor import cursors
from scratchbus.eventlog.entry_filter import EntryFilter, decode_wanted
from scratchbus.eventlog.reader import read
from scratchbus.projections import session
from scratchbus.projections.subjects import is_over, projection_of
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
    if page.startswith(SESSION_PAGES) and subject != session.SUBJECT:
        events += [event for event in (yield from history(core.log, page, session.SUBJECT)) if is_over(event)]
    return sorted(events, key=attrgetter("position"))  # it may have been erased after the session ended


def history_of_all(core: Core, page: str, prefix: str) -> Step[list[AnyEvent]]:
    """Return the events about all subjects of a session with a prefix, oldest first, and the one that ended it."""
    events, page_cursors = list[AnyEvent](), (yield from cursors(core.log, None, [page]))
    while chunks := (yield from read(core.log, page_cursors)):
        events += decode_wanted(chunks, EntryFilter.of([page], None, None))
    return [event for event in events if event.subject.startswith(prefix) or is_over(event)]
