"""Begin sessions from others, and end them.

Beginning a session concerns two pages, so it takes two writes: an event on the page of the parent announces the
session, then one batch begins it, with event ids that derive from the first. A fork then copies the conversation, in as
many batches as it takes (`commands/forks.py`). If this is interrupted, the next call continues it.
"""

from __future__ import annotations

from typing import NamedTuple

from scratchbus.commands.execution import Occasion
from scratchbus.commands.forks import copy_conversation
from scratchbus.commands.memory import edit
from scratchbus.commands.memory_edit import MemoryEdit, put
from scratchbus.commands.notepad import content_of
from scratchbus.domain.checks import check_flag, check_own_event_id
from scratchbus.domain.digest import short_hash
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Session
from scratchbus.domain.memory_events import NotepadWritten, SessionEnded, SessionSpawned, SessionStarted
from scratchbus.domain.values import page_of_session
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import EventIdReused, SessionExists, SessionOver, VersionConflict
from scratchbus.eventlog.append import append
from scratchbus.eventlog.bus_log import bounded_event_id
from scratchbus.projections import notepad
from scratchbus.projections.session import SUBJECT
from scratchbus.readmodel.history import history
from scratchbus.readmodel.memory_history import folded, history_of
from scratchbus.readmodel.queries import recollect_one
from scratchbus.readmodel.scope import Core


def get_session(core: Core, id: str) -> Step[Session | None]:
    """Return the record of a session; None if it has none."""
    document = yield from recollect_one(core, page_of_session(id), SUBJECT)
    return document if isinstance(document, Session) else None


def has_ended(core: Core, id: str) -> Step[bool]:
    """Return whether a session has ended."""
    record = yield from get_session(core, id)
    return record is not None and record.ended


class EndSession(MemoryEdit):
    """End a session: one event archives all its memories. A session that has ended is left unchanged."""

    verb, subject, ends_as = "end_session", SUBJECT, "ended"

    def decide(self, occasion: Occasion, document: Session | None) -> Event | None:
        """See `MemoryEdit`."""
        return None if document is not None and document.ended else occasion.event(SessionEnded, SUBJECT)


def end(core: Core, id: str, event_id: str | None) -> Step[Session]:
    """End a session."""
    try:
        ended = yield from edit(core, page_of_session(id), EndSession.parse({"event_id": event_id}))
    except SessionOver:  # someone else was faster
        ended = yield from get_session(core, id)
    if not isinstance(ended, Session):
        raise AssertionError(f"session {id} has ended and has no document")
    return ended


class BeginSession(MemoryEdit):
    """Record that another session begins from this one."""

    verb, subject = "begin_session", SUBJECT
    session: str
    fork: bool
    copied: bool

    def decide(self, occasion: Occasion, document: Session | None) -> Event | None:
        """See `MemoryEdit`."""
        if document is not None and self.session in document.children:
            return None  # this continues an interrupted call
        return occasion.event(SessionSpawned, SUBJECT, session=self.session, fork=self.fork, copied=self.copied)


class _Beginning(NamedTuple):
    """A session to begin from its parent. `event_id` is the id of the event that announces it.

    That id `is_given` by the caller, `is_fresh` if generated for this call, or else derives from the two sessions.
    """

    parent: str
    id: str
    is_fork: bool
    copies: bool
    event_id: str
    is_given: bool = False
    is_fresh: bool = False


def begin(core: Core, parent: str, id: str | None, is_fork: bool, copy: bool, event_id: str | None) -> Step[str]:
    """Begin a session from another one, with a copy of its notepad or an empty one; return its id.

    Raises SessionOver for a parent that has ended, SessionExists, and EventIdReused.
    """
    page = page_of_session(parent)
    check_flag("copy_notepad", copy)
    check_own_event_id(event_id)
    if id == parent:
        raise SessionExists(id)
    if id is not None:
        spawn_id = event_id or f"begin-{short_hash(f'{page} {page_of_session(id)}')}"
        return (yield from _begin(core, _Beginning(parent, id, is_fork, copy, spawn_id, is_given=event_id is not None)))
    if event_id is None:
        spawn_id = yield from bounded_event_id(core.log, page)
        return (
            yield from _begin(core, _Beginning(parent, _id_of(core, spawn_id), is_fork, copy, spawn_id, is_fresh=True))
        )
    try:
        beginning = _Beginning(parent, _id_of(core, event_id), is_fork, copy, event_id, is_given=True)
        return (yield from _begin(core, beginning))
    except SessionExists:
        raise EventIdReused(event_id) from None


def _begin(core: Core, beginning: _Beginning) -> Step[str]:
    """Begin a session, or continue if it was interrupted; return its id."""
    page = page_of_session(beginning.parent)
    if (child := (yield from _begun(core, beginning))) is not None:
        if child.ended and not (beginning.is_given or beginning.is_fresh):
            raise SessionOver(beginning.id)
        if beginning.is_given:
            first = yield from _spawn_event(core, page, beginning.id)
            if (first.id, first.copied) == (beginning.event_id, not beginning.copies):
                raise EventIdReused(beginning.event_id)
        if beginning.is_fork:
            yield from copy_conversation(core, (yield from _spawn_event(core, page, beginning.id)))
        return beginning.id
    command = BeginSession.parse(
        {
            "session": beginning.id,
            "fork": beginning.is_fork,
            "copied": beginning.copies,
            "event_id": None if beginning.is_fresh else beginning.event_id,
        }
    )
    try:
        yield from edit(core, page, command, command.on(core, page)._replace(event_id=beginning.event_id))
    except EventIdReused:
        if beginning.is_given:
            raise
        raise SessionExists(beginning.id) from None
    yield from _start(core, beginning, (yield from _spawn_event(core, page, beginning.id)))
    return beginning.id


def _id_of(core: Core, event_id: str) -> str:
    """Return the id of the session that an event begins. It depends on the writer, as event ids belong to a writer."""
    return f"s-{short_hash(f'{core.by} {event_id}')}"


def _begun(core: Core, beginning: _Beginning) -> Step[Session | None]:
    """Return the session if it has begun, from the same parent and in the same way. Raises SessionExists."""
    child = page_of_session(beginning.id)
    keys = core.log.keys(core.log.shard(child))
    if not (yield from ask(keys.shard, "HLEN", keys.heads(child))):
        return None
    known = yield from get_session(core, beginning.id)
    if known is None or (known.parent, known.fork) != (beginning.parent, beginning.is_fork):
        raise SessionExists(beginning.id)
    return known


def _spawn_event(core: Core, page: str, id: str) -> Step[SessionSpawned]:
    """Return the event of the parent that announced a session."""
    for event in (yield from history(core.log, page, SUBJECT)):
        if isinstance(event, SessionSpawned) and event.session == id:
            return event
    raise SessionExists(id)


def _start(core: Core, beginning: _Beginning, first: SessionSpawned) -> Step[None]:
    """Begin an announced session; a copied notepad is as it was at the announcement."""
    child = page_of_session(beginning.id)
    occasion = Occasion.of(core, child, first.id, "start_session", beginning.parent, first.fork, first.copied)
    occasion = occasion.caused_by(first.position, first.by)
    events: list[Event] = [occasion.event(SessionStarted, SUBJECT, "/1", parent=beginning.parent, fork=first.fork)]
    if first.copied:
        edits = yield from history_of(core, first.page, notepad.SUBJECT)
        content = content_of(folded(edits, notepad.SUBJECT, first.position))
        events.append(occasion.event(NotepadWritten, notepad.SUBJECT, "/2", content=content))
    writes = [put(occasion, event, 0) for event in events]
    try:
        yield from append(core.log, child, writes)
    except VersionConflict:
        raise SessionExists(first.session) from None
    if first.fork:
        yield from copy_conversation(core, first)
