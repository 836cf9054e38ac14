"""Writing what an agent remembers: each edit is an event upon the version that it was made for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from scratchbus.core import Core
from scratchbus.domain.checks import check_guards
from scratchbus.domain.digest import digest_of
from scratchbus.domain.event import Event
from scratchbus.domain.position import Position
from scratchbus.domain.remembered import Remembered, Session
from scratchbus.errors import Conflict, InvalidInput, NotFound, SessionOver, VersionConflict
from scratchbus.histories import history, known_events, walk_back
from scratchbus.ids import new_event_id
from scratchbus.log.append import append
from scratchbus.log.steps import Pause, Step
from scratchbus.log.writes import Write
from scratchbus.projections import session
from scratchbus.projections.memory import MEMORIES, fold, is_over, memory_of
from scratchbus.queries import recollect

_TRIES = 100
_LONGEST_REST = 0.1  # seconds, when others write too
_NEVER = -1  # no subject has this version

Make = Callable[[Remembered | None], Event | None]
"""Returns the event that an edit of this document makes, None when it would change nothing; may raise InvalidInput."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of one subject: its caller's own event id, and the digest by which a retry is known."""

    page: str
    subject: str
    event_id: str | None = None
    digest: str = ""

    @classmethod
    def of(cls, page: str, subject: str, event_id: str | None, operation: str, *given: object) -> Edit:
        """Return the edit that an operation makes with what its caller gave. Raises InvalidId."""
        check_guards(event_id, None)
        digest = digest_of(operation, page, subject, *given) if event_id is not None else ""
        return cls(page, subject, event_id, digest)

    def write(self, event: Event, version: int | None, status: str = "") -> Write:
        """Return the write of an event upon a version of its subject; with a status it is the last one."""
        event.placed(id=self.event_id or new_event_id(), page=self.page, subject=self.subject)
        final = "final" if status else ""
        return Write(event, "g", self.digest, version, status=status, status_class=final, argument=session.SUBJECT)


def edit(core: Core, asked: Edit, make: Make, status: str = "") -> Step[Remembered | None]:
    """Append the event that an edit makes of the subject as it is, and return what it is then.

    When someone else was faster it is made again of what that left. A retry is answered with what the subject was after
    the event that is there already. Raises what `make` raises, SessionOver, EventIdReused, or Conflict when others keep
    changing it.
    """
    missing = 0
    for attempt in range(_TRIES):
        found = yield from recollect(core.log, asked.page, (asked.subject, session.SUBJECT), core.fresh)
        before, its_session = found.get(asked.subject), found.get(session.SUBJECT)
        try:
            if isinstance(its_session, Session) and its_session.ended and before is not its_session:
                raise SessionOver(its_session.id)
            event = make(before)
        except (InvalidInput, NotFound, Conflict):
            known = yield from _known(core, asked)
            if known is None:
                raise
            return (yield from as_left(core, known))
        if event is None:
            known = yield from _known(core, asked)
            return before if known is None else (yield from as_left(core, known))
        try:
            write = asked.write(event, before.version if before else missing, status)
            done = yield from append(core.log, asked.page, [write])
        except VersionConflict as conflict:
            missing = conflict.actual  # of one without a document, because nothing of it could be read
            yield Pause(random.uniform(0, min(_LONGEST_REST, 0.002 * (attempt + 1))))  # jitter: another is at it
            continue
        if done.recalled is not None:
            (event,) = yield from known_events(core.log, done.recalled)
            return (yield from as_left(core, event))
        row = done.written[0]
        event.placed(ms=row.position.ms, seq=row.position.seq, shard=row.position.shard)
        return fold(before, event, MEMORIES[asked.subject.partition("_")[0]])[0]
    raise Conflict(f"{asked.subject} keeps changing; try again")


def _known(core: Core, asked: Edit) -> Step[Event | None]:
    """Return the event that a retry has already appended, None when this is no retry. Raises EventIdReused."""
    if asked.event_id is None:
        return None
    asking = Event(id=asked.event_id, page=asked.page, subject=asked.subject, by=core.by)
    try:
        done = yield from append(core.log, asked.page, [Write(asking, "g", asked.digest, _NEVER, body=b"{}")])
    except VersionConflict:
        return None
    (event,) = yield from known_events(core.log, done.recalled or [])
    return event


def as_left(core: Core, event: Event) -> Step[Remembered | None]:
    """Return what a subject was after one of its events."""
    events, at = list[Event](), event.position.stream_id
    while at:
        some, at = yield from walk_back(core.log, event.page, event.subject, at, 500)
        events += some
    return folded(events[::-1], event.subject)


def folded(events: list[Event], subject: str, until: Position | None = None) -> Remembered | None:
    """Return what these events leave of a subject, all of them or those up to a position.

    The event that ended its session, which is about another subject, leaves nothing of it.
    """
    memory = memory_of(subject)
    document: Remembered | None = None
    for event in events:
        if memory is not None and (until is None or event.position <= until):
            document = None if event.subject != subject else fold(document, event, memory)[0]
    return document


def history_of(core: Core, page: str, subject: str) -> Step[list[Event]]:
    """Return the events about a subject, oldest first, and the one that ended its session, if it did."""
    events = yield from history(core.log, page, subject)
    if page.startswith(session.PAGES) and subject != session.SUBJECT:
        events += [event for event in (yield from history(core.log, page, session.SUBJECT)) if is_over(event)]
    return sorted(events, key=attrgetter("position"))  # it may have been erased since
