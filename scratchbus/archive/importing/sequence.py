"""What may follow what: checks of an event against the state that the events before it leave."""

from __future__ import annotations

from scratchbus.archive.importing.limits import MOST_NOTEPAD
from scratchbus.domain.event import Event
from scratchbus.domain.events import (
    Added,
    Claimed,
    ContextRendered,
    Erased,
    Lapsed,
    Released,
    Repeated,
    StatusChanged,
    Updated,
)
from scratchbus.domain.memories import Session
from scratchbus.domain.memory_events import NoteAdded, NotepadEdited, TaskBegun, TodoWritten
from scratchbus.domain.observation import Observation
from scratchbus.domain.todo import MAX_ITEMS
from scratchbus.domain.values import LARGEST
from scratchbus.eventlog.gaps import STATUS as ERASED
from scratchbus.projections.notepad import NotepadText
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.table import is_remembered
from scratchbus.projections.todo import TodoDocument
from scratchbus.readmodel.verify.expected import PageState, Subject


def problem_with(page: PageState, event: Event) -> str:
    """Return why an event cannot come next on its page, "" when it can."""
    known = page.subjects.get(event.subject, Subject())
    if isinstance(event, Erased):
        was_erased = known.gone is not None and known.gone.status == ERASED
        return "erases events that are still there" if known.events and not was_erased else ""
    if is_remembered(event.subject):
        return _of_memory(page, event, known)
    if isinstance(event, Added):
        if known.events:
            return "adds what was there before"
        return _of_key(page, event.subject, event.dedupe_key)
    before = page.documents.get(event.subject)
    return _of_observation(page, event, before) if before is not None else ""


def _of_observation(page: PageState, event: Event, before: Observation) -> str:
    is_final = before.status_class == "final"
    if isinstance(event, Updated | StatusChanged) and is_final:
        return f"changes what is {before.status}, which is final"
    if isinstance(event, StatusChanged) and event.status_class == "open" and not before.is_open:
        return _of_key(page, event.subject, before.dedupe_key)
    if isinstance(event, Repeated):
        if not before.is_open:
            return f"counts what is {before.status} again"
        return "counts more than can be counted" if before.occurrences + event.times > LARGEST else ""
    if isinstance(event, Claimed):
        return _of_claim(event, before)
    if isinstance(event, Released | Lapsed) and before.claim is None:
        return f"is a {event.kind} of a claim that is over"
    return ""


def _of_claim(event: Claimed, before: Observation) -> str:
    if not before.is_open:
        return f"claims what is {before.status}"
    if event.fence is None:
        return "claims what is claimed" if before.claim is not None else ""
    return "" if before.claim is not None and before.fence == event.fence else "prolongs a claim that is over"


def _of_key(page: PageState, subject: str, key: str | None) -> str:
    holder = page.holders.get(key) if key else None
    return f"has the dedupe key of {holder}, which is open" if holder not in (None, subject) else ""


def _of_memory(page: PageState, event: Event, known: Subject) -> str:
    session = page.remembered.get(SESSION)
    if isinstance(session, Session) and session.ended and not isinstance(event, ContextRendered):
        return "comes after its session has ended"
    if isinstance(event, NoteAdded | TaskBegun) and known.events:
        return "begins what was there before"
    before = page.remembered.get(event.subject)
    if isinstance(event, NotepadEdited):
        text = before.content if isinstance(before, NotepadText) else ""
        if _length_after(text, event) > MOST_NOTEPAD:
            return f"makes a notepad of more than {MOST_NOTEPAD:,} characters"
    items = (
        [*before.todos, *event.todos]
        if isinstance(event, TodoWritten) and event.merge and isinstance(before, TodoDocument)
        else []
    )
    if len({item.id for item in items}) > MAX_ITEMS:
        return f"makes a todo list of more than {MAX_ITEMS} items"
    return ""


def _length_after(text: str, edit: NotepadEdited) -> int:
    """Return how long a notepad is after an edit, without making it: a short edit may make a very long text."""
    if edit.operation != "find_replace" or not edit.find:
        return len(text) + len(edit.content)
    count = text.count(edit.find) if edit.replace_all else 1
    return len(text) + count * (len(edit.replace) - len(edit.find))
