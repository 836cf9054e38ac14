"""Beginning sessions from others, and ending them.

To begin one concerns two pages, so it takes two writes: the parent says that it begins the other one, then that one
begins, in one batch, under ids made of the first event's. What is cut short in between goes on when it is called again.
"""

from __future__ import annotations

from hashlib import blake2b

from scratchbus.commands.memory import Edit, edit, folded, history_of
from scratchbus.commands.notepad import content_of
from scratchbus.domain.checks import check_guards
from scratchbus.domain.digest import digest_of
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Remembered, Session
from scratchbus.domain.memory_events import NotepadWritten, SessionEnded, SessionSpawned, SessionStarted
from scratchbus.domain.values import page_of_session
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import EventIdReused, InvalidField, SessionExists, SessionOver, VersionConflict, shown
from scratchbus.eventlog.append import append, fresh_id
from scratchbus.eventlog.because import reasons
from scratchbus.projections import notepad
from scratchbus.projections.session import SUBJECT
from scratchbus.readmodel.history import history
from scratchbus.readmodel.queries import recollect
from scratchbus.readmodel.scope import Core

_ENDED = "ended"


def get_session(core: Core, id: str) -> Step[Session | None]:
    """Return what is known of a session itself."""
    found = yield from recollect(core.log, page_of_session(id), [SUBJECT], core.fresh)
    document = found.get(SUBJECT)
    return document if isinstance(document, Session) else None


def end(core: Core, id: str, event_id: str | None) -> Step[Session]:
    """Archive all that is remembered in a session with one event; one that has ended stays as it is."""
    page = page_of_session(id)

    def make(document: Remembered | None) -> Event | None:
        is_over = isinstance(document, Session) and document.ended
        return None if is_over else SessionEnded(by=core.acting(), **reasons())

    try:
        ended = yield from edit(core, Edit.of(page, SUBJECT, event_id, "end_session"), make, status=_ENDED)
    except SessionOver:  # someone else was faster
        ended = yield from get_session(core, id)
    if not isinstance(ended, Session):
        raise AssertionError(f"session {id} has ended and has no document")
    return ended


def begin(core: Core, parent: str, id: str | None, is_fork: bool, copy: bool, event_id: str | None) -> Step[str]:
    """Begin a session from another one, with its notepad as it is or an empty one; return its id.

    Raises SessionOver for a parent that has ended, and SessionExists.
    """
    page = page_of_session(parent)
    if not isinstance(copy, bool):
        raise InvalidField("copy_notepad", f"{shown(copy)} is neither true nor false")
    check_guards(event_id)
    given_id, own = event_id, None
    if id is None:
        own = event_id or (yield from fresh_id(core.log, page))
        id = f"s-{_word(own)}"
    child = page_of_session(id)
    if event_id is None and own is None:
        event_id = f"begin-{_word(f'{page} {child}')}"
    if (yield from _is_begun(core, child, parent, id, is_fork)):
        if given_id is not None:
            first = yield from _first(core, page, id)
            if (first.id, first.copied) == (given_id, not copy):
                raise EventIdReused(given_id)
        return id

    def make(document: Remembered | None) -> Event | None:
        if isinstance(document, Session) and id in document.children:
            return None  # this goes on with what was cut short long ago
        return SessionSpawned(by=core.acting(), **reasons(), session=id, fork=is_fork, copied=copy)

    asked = Edit.of(page, SUBJECT, event_id, "begin_session", id, is_fork, copy)
    try:
        yield from edit(core, asked if event_id is not None else Edit(page, SUBJECT, own), make)
    except EventIdReused:
        raise SessionExists(id) from None
    first = yield from _first(core, page, id)
    yield from _start(core, child, parent, first)
    return id


def _word(text: str) -> str:
    return blake2b(text.encode(), digest_size=10).hexdigest()


def _is_begun(core: Core, child: str, parent: str, id: str, is_fork: bool) -> Step[bool]:
    """Say whether a session is there, just as it would be begun now. Raises SessionExists for any other one."""
    keys = core.log.keys(core.log.shard(child))
    if not (yield from ask(keys.shard, "HLEN", keys.heads(child))):
        return False
    known = yield from get_session(core, id)
    if known is None or (known.parent, known.fork) != (parent, is_fork):
        raise SessionExists(id)
    return True


def _first(core: Core, page: str, id: str) -> Step[SessionSpawned]:
    """Return the event by which a parent began a session."""
    for event in (yield from history(core.log, page, SUBJECT)):
        if isinstance(event, SessionSpawned) and event.session == id:
            return event
    raise SessionExists(id)


def _start(core: Core, child: str, parent: str, first: SessionSpawned) -> Step[None]:
    """Begin a session with what its parent had noted when it said so."""
    why = reasons() | {"cause": str(first.position)}
    events: list[tuple[str, Event]] = [(SUBJECT, SessionStarted(by=first.by, **why, parent=parent, fork=first.fork))]
    if first.copied:
        edits = yield from history_of(core, first.page, notepad.SUBJECT)
        content = content_of(folded(edits, notepad.SUBJECT, first.position))
        events.append((notepad.SUBJECT, NotepadWritten(by=first.by, **why, content=content)))
    digest = digest_of("start_session", child, parent, first.fork, first.copied)
    writes = [
        Edit(child, subject, f"{first.id}/{number}", digest).write(event, 0)
        for number, (subject, event) in enumerate(events, 1)
    ]
    try:
        yield from append(core.log, child, writes)
    except VersionConflict:
        raise SessionExists(first.session) from None
