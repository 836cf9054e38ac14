"""Rules about single events and about their order: the live bus appends no event that breaks one of them."""

from __future__ import annotations

from scratchbus.archive.importing.field_rules import MAX_NOTEPAD, check_fields
from scratchbus.domain.conversation_events import TextEdited, TurnAppended, TurnsCompacted
from scratchbus.domain.conversations import Text
from scratchbus.domain.event import Event
from scratchbus.domain.fact_events import FactAsserted
from scratchbus.domain.item_events import ItemPut
from scratchbus.domain.items import subject_of as item_of
from scratchbus.domain.lifecycle import ARCHIVED
from scratchbus.domain.memories import Preference, Session
from scratchbus.domain.memory_events import (
    NoteAdded,
    NotepadEdited,
    PreferenceForgotten,
    PreferenceRemembered,
    TaskBegun,
    TodoWritten,
)
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import (
    Added,
    Claimed,
    ContextRendered,
    Erased,
    Lapsed,
    RelationsChanged,
    Released,
    Repeated,
    StatusChanged,
    TypesChanged,
    Updated,
)
from scratchbus.domain.position import Position
from scratchbus.domain.preferences import subject_of as preference_of
from scratchbus.domain.tasks import PREFIX as TASKS
from scratchbus.domain.todo import MAX_ITEMS
from scratchbus.domain.values import MAX_SAFE_INTEGER, check_whole
from scratchbus.errors import InvalidField, shown
from scratchbus.eventlog.causes import because
from scratchbus.eventlog.gaps import ERASED
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.projections.contexts import subject_of
from scratchbus.projections.notepad import NotepadDocument
from scratchbus.projections.preferences import PREFIX as PREFERENCE
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.subjects import is_remembered
from scratchbus.projections.todo import TodoDocument, evolve
from scratchbus.projections.turns import PREFIX as TURNS
from scratchbus.readmodel.verify.expected import PageState, Subject


def check_event(event: Event) -> None:
    """Raise InvalidInput for an event that a live bus would not append."""
    check_fields(event.kind, event.__dict__)
    with because(event.cause, traceparent=event.traceparent):  # this checks them
        pass
    if (event.page == SYSTEM_PAGE) != isinstance(event, TypesChanged | RelationsChanged):
        raise InvalidField("page", f"{event.kind} does not belong on page {event.page!r}")
    is_typed = not is_remembered(event.subject) and event.page != SYSTEM_PAGE
    if bool(event.type) != is_typed and not isinstance(event, Erased):
        raise InvalidField("type", f"{shown(event.type)} cannot be the type of {event.subject}")
    if isinstance(event, Updated):
        check_fields("changes", event.changes)
    elif isinstance(event, ContextRendered):
        subject = subject_of(event.session, event.agent or event.by)
        if event.subject != subject:
            raise InvalidField("subject", f"{shown(event.subject)} is not the subject of the context, {subject}")
    elif isinstance(event, ItemPut):
        if event.subject != item_of(event.namespace, event.key):
            raise InvalidField("subject", f"{shown(event.subject)} is not the subject of the key {shown(event.key)}")
    elif isinstance(event, PreferenceRemembered):
        if event.subject != preference_of(PREFERENCE, event.key):
            raise InvalidField("subject", f"{shown(event.subject)} is not the subject of the key {shown(event.key)}")
    elif isinstance(event, StatusChanged) and event.status == ARCHIVED and event.status_class != "final":
        raise InvalidField("status_class", f"{shown(event.status_class)} is not the class of {ARCHIVED!r}")
    elif isinstance(event, Erased):
        positions = [Position.parse(text) for text in event.positions]
        is_of_copy = event.cause is not None and event.subject.startswith((TURNS, TASKS))  # before the copy was written
        is_after = any(position.seq >= event.seq or position.ms > event.ms for position in positions)
        if is_after or not (positions or is_of_copy):
            raise InvalidField("positions", "are not all before the tombstone")
        check_whole("version", event.version, len(set(positions)) + 1)


def problem_with(page: PageState, event: Event) -> str:
    """Return why an event cannot be the next one on its page, or "" if it can."""
    subject = page.subjects.get(event.subject, Subject())
    match event:
        case Erased():
            exists = subject.events and (subject.last_head is None or subject.last_head.status != ERASED)
            return "erases events that are still in the file" if exists else ""
        case Added() | NoteAdded() | TaskBegun() | FactAsserted() | TurnAppended() | TurnsCompacted() if subject.events:
            return f"adds {event.subject}, which was added before"
    if is_remembered(event.subject):
        return _problem_in_memory(page, event)
    before = page.observation(event.subject)
    return (before and _problem_after(before, event)) or _problem_of_key(page, event, before)


def _problem_after(before: Observation, event: Event) -> str:
    match event:
        case Updated() | StatusChanged() if before.status_class == "final":
            return f"changes an observation with the final status {before.status}"
        case Updated() if "every" in event.changes and before.every is None:
            return "makes an observation recur that did not"
        case Repeated() if not before.is_open:
            return f"repeats an observation that is {before.status}"
        case Repeated() if before.occurrences + event.times > MAX_SAFE_INTEGER:
            return f"raises the occurrences above the limit of {MAX_SAFE_INTEGER:,}"
        case Claimed() if not before.is_open:
            return f"claims an observation that is {before.status}"
        case Claimed(fence=None) if before.claim is not None:
            return "claims an observation that is already claimed"
        case Claimed(fence=int(fence)) if before.claim is None or before.fence != fence:
            return "renews a claim that has ended"
        case Released() | Lapsed() if before.claim is None:
            return f"is a {event.kind} event of a claim that has ended"
    return ""


def _problem_of_key(page: PageState, event: Event, before: Observation | None) -> str:
    """Return the problem if another open observation has the dedupe key of one that becomes open."""
    key = event.dedupe_key if isinstance(event, Added) else None
    if isinstance(event, StatusChanged) and before is not None and not before.is_open and event.status_class == "open":
        key = before.dedupe_key
    holder = page.holders.get(key) if key else None
    return "" if holder in (None, event.subject) else f"has the dedupe key of {holder}, which is open"


def _problem_in_memory(page: PageState, event: Event) -> str:
    session, before = page.memory(SESSION), page.memory(event.subject)
    if isinstance(session, Session) and session.ended and not isinstance(event, ContextRendered):
        return "comes after its session has ended"
    if isinstance(event, NotepadEdited):
        text = before.content if isinstance(before, NotepadDocument) else ""
        if _length_after(text, event) > MAX_NOTEPAD:
            return f"makes a notepad of more than {MAX_NOTEPAD:,} characters"
    if isinstance(event, PreferenceForgotten) and not (isinstance(before, Preference) and not before.forgotten):
        return "forgets a preference that does not exist"
    if isinstance(event, TextEdited) and isinstance(before, Text):
        size = len(before.content) + len(event.content)
        return f"makes a text of more than {MAX_NOTEPAD:,} characters" if size > MAX_NOTEPAD else ""
    if isinstance(event, TodoWritten) and isinstance(before, TodoDocument):
        plan = evolve(before, event)
        if plan is not None and len(plan.todos) > MAX_ITEMS:
            return f"makes a todo list of more than {MAX_ITEMS} items"
    return ""


def _length_after(text: str, edit: NotepadEdited) -> int:
    """Return the length of a notepad after an edit, without applying it: a short edit may make a very long text."""
    if edit.operation == "delete":
        return len(text)  # at most
    if edit.operation != "find_replace" or not edit.find:
        return len(text) + len(edit.content)
    count = text.count(edit.find) if edit.replace_all else 1
    return len(text) + count * (len(edit.replace) - len(edit.find))
