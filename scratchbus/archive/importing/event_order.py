"""Rules about what may follow what: an event and the state that the events before it leave."""

from __future__ import annotations

from scratchbus.archive.importing.event_rules import MOST_NOTEPAD
from scratchbus.domain.agent_events import TaskBegun, TodoWritten
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
from scratchbus.domain.memory_events import NoteAdded, NotepadEdited
from scratchbus.domain.observation import Observation
from scratchbus.domain.todo import MAX_ITEMS
from scratchbus.domain.values import LARGEST
from scratchbus.eventlog.gaps import STATUS as ERASED
from scratchbus.projections.notepad import Text
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.table import is_remembered
from scratchbus.projections.todo import Plan, evolve
from scratchbus.readmodel.verify.expected import PageState, Subject


def problem_with(page: PageState, event: Event) -> str:
    """Return why an event cannot be the next one on its page, or "" if it can."""
    known = page.subjects.get(event.subject, Subject())
    match event:
        case Erased():
            is_there = known.events and (known.gone is None or known.gone.status != ERASED)
            return "erases events that are still there" if is_there else ""
        case Added() | NoteAdded() | TaskBegun() if known.events:
            return "adds what was there before"
    if is_remembered(event.subject):
        return _problem_in_memory(page, event)
    before = page.documents.get(event.subject)
    return (before and _problem_after(before, event)) or _problem_of_key(page, event, before)


def _problem_after(before: Observation, event: Event) -> str:
    match event:
        case Updated() | StatusChanged() if before.status_class == "final":
            return f"changes what is {before.status}, which is final"
        case Repeated() if not before.is_open:
            return f"counts what is {before.status} again"
        case Repeated() if before.occurrences + event.times > LARGEST:
            return "counts more than can be counted"
        case Claimed() if not before.is_open:
            return f"claims what is {before.status}"
        case Claimed(fence=None) if before.claim is not None:
            return "claims what is claimed"
        case Claimed(fence=int(fence)) if before.claim is None or before.fence != fence:
            return "renews a claim that is over"
        case Released() | Lapsed() if before.claim is None:
            return f"is a {event.kind} of a claim that is over"
    return ""


def _problem_of_key(page: PageState, event: Event, before: Observation | None) -> str:
    """Return who has the dedupe key of an observation that becomes open, if anyone else does."""
    key = event.dedupe_key if isinstance(event, Added) else None
    if isinstance(event, StatusChanged) and before is not None and not before.is_open and event.status_class == "open":
        key = before.dedupe_key
    holder = page.holders.get(key) if key else None
    return "" if holder in (None, event.subject) else f"has the dedupe key of {holder}, which is open"


def _problem_in_memory(page: PageState, event: Event) -> str:
    session, before = page.remembered.get(SESSION), page.remembered.get(event.subject)
    if isinstance(session, Session) and session.ended and not isinstance(event, ContextRendered):
        return "comes after its session has ended"
    if isinstance(event, NotepadEdited):
        text = before.content if isinstance(before, Text) else ""
        if _length_after(text, event) > MOST_NOTEPAD:
            return f"makes a notepad of more than {MOST_NOTEPAD:,} characters"
    if isinstance(event, TodoWritten) and isinstance(before, Plan):
        plan = evolve(before, event)
        if plan is not None and len(plan.todos) > MAX_ITEMS:
            return f"makes a todo list of more than {MAX_ITEMS} items"
    return ""


def _length_after(text: str, edit: NotepadEdited) -> int:
    """Return how long a notepad is after an edit, without making it: a short edit may make a very long text."""
    if edit.operation != "find_replace" or not edit.find:
        return len(text) + len(edit.content)
    count = text.count(edit.find) if edit.replace_all else 1
    return len(text) + count * (len(edit.replace) - len(edit.find))
