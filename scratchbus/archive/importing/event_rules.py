"""Rules about events, each alone and after those before it: the live bus appends no event that breaks one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from scratchbus.domain.checks import (
    MAX_EVIDENCE,
    as_time,
    check_action,
    check_content,
    check_label,
    check_object,
    check_reason,
    check_tags,
    check_text,
)
from scratchbus.domain.conversation_events import TextEdited, TurnAppended, TurnsCompacted
from scratchbus.domain.conversations import MOST_COMPACTED, Text, check_path, check_role
from scratchbus.domain.event import Event
from scratchbus.domain.events import (
    EVENTS,
    Added,
    Changes,
    Claimed,
    ContextRendered,
    Erased,
    ItemPut,
    Lapsed,
    RelationsChanged,
    Released,
    Repeated,
    StatusChanged,
    TypesChanged,
    Updated,
)
from scratchbus.domain.fact_events import FactAsserted
from scratchbus.domain.given_observation import NewObservation, invalid
from scratchbus.domain.items import check_name, check_namespace
from scratchbus.domain.items import subject_of as item_of
from scratchbus.domain.lifecycle import ARCHIVED, StatusClass
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
from scratchbus.domain.position import Position
from scratchbus.domain.preferences import check_key, check_preference
from scratchbus.domain.preferences import subject_of as preference_of
from scratchbus.domain.registry import HIGHEST_PRIORITY, MOST_TAGS
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.domain.relation_registry import parse_relations
from scratchbus.domain.run import MOST_STEPS
from scratchbus.domain.scratchpad import check_content as check_scratchpad
from scratchbus.domain.tasks import check_text as check_task
from scratchbus.domain.todo import MAX_ITEMS, given, written
from scratchbus.domain.values import (
    LARGEST,
    MAX_BYTES,
    check_id,
    check_page,
    check_source,
    check_whole,
    is_type_name,
    page_of_session,
)
from scratchbus.errors import InvalidField, InvalidInput, shown
from scratchbus.eventlog.because import because
from scratchbus.eventlog.gaps import STATUS as ERASED
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.projections.contexts import subject_of
from scratchbus.projections.notepad import NotepadDocument
from scratchbus.projections.preferences import PREFIX as PREFERENCE
from scratchbus.projections.session import PAGES
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.table import check_subject, is_remembered
from scratchbus.projections.todo import TodoDocument, evolve
from scratchbus.readmodel.verify.expected import PageState, Subject

MOST_NOTEPAD = 1_000_000
"""The most characters of a notepad, whatever the settings."""

_MOST_TYPES = 8 * 1024 * 1024  # characters of a registry
_LONGEST_MS = 100 * 365 * 86_400_000  # that anything lasts
_RESERVED = ("cleared", "erased")  # what the append script calls a head that is off the page


def _checked(check: Callable[..., object], *first: object, **named: object) -> Any:
    """Return the rule that a field is as a check of live writes returns it."""
    return Annotated[Any, PlainValidator(partial(check, *first, **named))]


def _check_status(status: str) -> str:
    if not is_type_name(status) or status in _RESERVED:
        raise InvalidField("status", f"{shown(status)} is not the name of a status")
    return status


def _check_relations(text: str) -> str:
    parse_relations(text, "relations")
    return text


_Span = Annotated[int, Field(ge=1, le=_LONGEST_MS)]
_Delay = Annotated[int, Field(ge=0, le=_LONGEST_MS)]
_Count = Annotated[int, Field(ge=1, le=LARGEST)]
_Text = Annotated[str, Field(max_length=MAX_BYTES)]
_Texts = Annotated[list[_Text], Field(max_length=MAX_EVIDENCE)]
_NotepadText = Annotated[str, Field(max_length=MOST_NOTEPAD)]
_LongText = Annotated[str, Field(max_length=MOST_NOTEPAD)]
_Counted = Annotated[int, Field(ge=0, le=LARGEST)]
_Id = Annotated[str, AfterValidator(check_id)]
_Session = _checked(lambda name: page_of_session(name).removeprefix(PAGES))

_RULES: dict[str, Any] = {
    "id": Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,1000}$")],  # callers' have up to 200; ours are made of theirs
    "page": _checked(check_page),
    "by": _checked(check_source, field="by"),
    "type": Annotated[str, Field(pattern="^([a-z][a-z0-9_]{0,63})?$")],
    "subject": _Id,
    "erased.subject": _checked(check_subject),
    "context.subject": _checked(check_label, "subject"),
    "notepad.subject": Literal["notepad"],
    "note.subject": Annotated[str, Field(pattern="^note_[0-9]{1,16}$")],
    "session.subject": Literal["session"],
    "todo.subject": Literal["todo"],
    "task.subject": Annotated[str, Field(pattern="^task_[0-9]{1,15}$")],
    "fact.subject": Annotated[str, Field(pattern="^fact_[0-9]{1,16}$")],
    "scratchpad.subject": Literal["scratchpad"],
    "run.subject": Literal["scratchpad"],
    "preference.subject": Annotated[str, Field(pattern="^preference_[0-9a-f]{16}$")],
    "item.subject": Annotated[str, Field(pattern="^item_[0-9a-f]{32}$")],
    "types.subject": Literal["types"],
    "relations.subject": Literal["relations"],
    "relations.text": Annotated[_checked(_check_relations), Field(max_length=_MOST_TYPES)],
    "turn.subject": Annotated[str, Field(pattern="^turn_[0-9]{1,16}$")],
    "turns.subject": Annotated[str, Field(pattern="^turn_[0-9]{1,16}$")],
    "file.subject": Annotated[str, Field(pattern="^file_[0-9a-f]{20}$")],
    "text.subject": Annotated[str, Field(pattern="^text_[0-9a-f]{20}$")],
    **{
        name: _checked(rule.check)
        for name, field in NewObservation.model_fields.items()
        for rule in field.metadata
        if hasattr(rule, "check") and name != "type"
    },
    "content": _checked(check_content),
    "tags": _checked(check_tags, most=MOST_TAGS),
    "ttl": _Span,
    "status_changed.ttl": _Delay,
    "status": _checked(_check_status),
    "status_class": StatusClass,
    "added.status_class": Literal["open"],
    "priority": Annotated[int, Field(ge=0, le=HIGHEST_PRIORITY)],
    "archive_after": _Delay,
    "reason": _checked(check_reason),
    "chain": Annotated[list[_Id], Field(max_length=MAX_EVIDENCE)],
    "seen_by": _Texts,
    "followed": _Texts,
    "holder": _checked(check_source, field="holder"),
    "fence": _Count,
    "work": _checked(check_label, "work"),
    "backoff": _Delay,
    "action": _checked(check_action),
    "trigger": _checked(lambda text: str(Position.parse(text))),
    "next": _checked(partial(as_time, "next")),
    "positions": _checked(lambda texts: [Position.parse(text).stream_id for text in texts]),
    "text": Annotated[
        _checked(lambda text: parse_registry(text, "types", is_published=True).text), Field(max_length=_MOST_TYPES)
    ],
    "observations": dict[_Id, _Count],
    "tokens": Annotated[int, Field(ge=0)],
    "notepad.content": _NotepadText,
    "find": _NotepadText,
    "replace": _NotepadText,
    "note.content": _checked(check_content, limit=4 * MAX_BYTES),  # its limit is in characters
    "note.tags": _checked(check_tags, most=MAX_EVIDENCE),
    "preference.key": _checked(check_key),
    "preference.text": _checked(check_preference),
    "item.namespace": _checked(lambda labels: list(check_namespace(labels))),
    "item.key": _checked(partial(check_name, "key")),
    "item.value": _checked(check_object, "value"),
    "item.text": _checked(check_text, "text"),
    "item.ttl": Annotated[int, Field(ge=1, le=LARGEST)],
    "said_by": _checked(check_label, "said_by"),
    "session_spawned.session": _Session,
    "parent": _Session,
    "todos": _checked(lambda items: written([], given(items), merge=False)),
    "title": _checked(check_task, "title"),
    "summary": _checked(check_task, "summary"),
    "scratchpad.content": _checked(check_scratchpad),
    "about": _checked(partial(check_label, "about")),
    "relation": Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,63}$")],
    "object": _checked(partial(check_label, "object")),
    "valid_at": _checked(partial(as_time, "valid_at")),
    "invalid_at": _checked(partial(as_time, "invalid_at")),
    "source_text": _checked(partial(check_content, field="source_text")),
    "refuted": _Id,
    "task": _Text,
    "outcome": _Text,
    "run.summary": _Text,
    "role": _checked(check_role),
    "turn.content": _LongText,
    "turns.content": _LongText,
    "turn.tokens": _Counted,
    "turns.tokens": _Counted,
    "turn.task": Annotated[str, Field(pattern="^task_[0-9]{1,15}$")],
    "turns": Annotated[
        list[Annotated[str, Field(pattern="^(turn|task)_[0-9]{1,16}$")]], Field(min_length=1, max_length=MOST_COMPACTED)
    ],
    "path": _checked(check_path),
    "size": _Counted,
    "sha256": Annotated[str, Field(pattern="^[0-9a-f]{64}$")],
    "text.content": _LongText,
    "text.find": _LongText,
    "text.source": _checked(check_path, field="source"),
    "text.target": _checked(check_path, field="target"),
    "line": _Counted,
    "steps": Annotated[
        list[Annotated[Any, PlainValidator(partial(check_object, "steps"))]], Field(max_length=MOST_STEPS)
    ],
}
"""What live writes append in each field. `note.content` is the field of kinds that begin with `note_`."""


def check_event(event: Event) -> None:
    """Raise InvalidInput for an event that nobody could have appended to a live bus."""
    _check_fields(event.kind, event.__dict__)
    with because(event.cause, traceparent=event.traceparent):  # which checks them
        pass
    if (event.page == SYSTEM_PAGE) != isinstance(event, TypesChanged | RelationsChanged):
        raise InvalidField("page", f"{event.kind} does not belong on page {event.page!r}")
    is_typed = not is_remembered(event.subject) and event.page != SYSTEM_PAGE
    if bool(event.type) != is_typed and not isinstance(event, Erased):
        raise InvalidField("type", f"{shown(event.type)} cannot be the type of {event.subject}")
    if isinstance(event, Updated):
        _check_fields("changes", event.changes)
    elif isinstance(event, ContextRendered):
        viewer = f"session:{event.session}" if event.session is not None else f"agent:{event.agent or event.by}"
        if event.subject != subject_of(viewer):
            raise InvalidField("subject", f"{shown(event.subject)} is not what {viewer} is shown")
    elif isinstance(event, ItemPut):
        if event.subject != item_of(event.namespace, event.key):
            raise InvalidField("subject", f"{shown(event.subject)} is not the subject of the key {shown(event.key)}")
    elif isinstance(event, PreferenceRemembered):
        if event.subject != preference_of(PREFERENCE, event.key):
            raise InvalidField("subject", f"{shown(event.subject)} is not the subject of the key {shown(event.key)}")
    elif isinstance(event, StatusChanged) and event.status == ARCHIVED and event.status_class != "final":
        raise InvalidField("status_class", f"{shown(event.status_class)} is not the class of {ARCHIVED!r}")
    elif isinstance(event, Erased):
        places = [Position.parse(text) for text in event.positions]
        if not places or any(place.seq >= event.seq or place.ms > event.ms for place in places):
            raise InvalidField("positions", "are not all before the tombstone")
        check_whole("version", event.version, len(set(places)) + 1)


def _check_fields(kind: str, fields: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a field that is not as live writes keep it."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        kept = _checker_of(kind).validate_python(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0].get("ctx", {}).get("error")
        raise (problem if isinstance(problem, InvalidInput) else invalid(error, [])) from None
    for name, value in kept.items():
        if value != given[name]:
            raise InvalidField(name, f"{shown(given[name])} is not in the form the bus stores")


@cache
def _checker_of(kind: str) -> TypeAdapter[dict[str, Any]]:
    """Return the compiled rules of a kind of event, or of the changes of an update; None is in no field."""
    names = EVENTS[kind].model_fields if kind in EVENTS else Changes.__annotations__
    group = kind.partition("_")[0]
    rules = {
        name: next((_RULES[key] for key in (f"{kind}.{name}", f"{group}.{name}", name) if key in _RULES), Any)
        for name in names
    }
    return TypeAdapter(TypedDict(kind, rules, total=False))  # type: ignore[operator]  # its fields are computed


def problem_with(page: PageState, event: Event) -> str:
    """Return why an event cannot be the next one on its page, or "" if it can."""
    known = page.subjects.get(event.subject, Subject())
    match event:
        case Erased():
            is_there = known.events and (known.gone is None or known.gone.status != ERASED)
            return "erases events that are still there" if is_there else ""
        case Added() | NoteAdded() | TaskBegun() | FactAsserted() | TurnAppended() | TurnsCompacted() if known.events:
            return "adds what was there before"
    if is_remembered(event.subject):
        return _problem_in_memory(page, event)
    before = page.observation(event.subject)
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
    session, before = page.memory(SESSION), page.memory(event.subject)
    if isinstance(session, Session) and session.ended and not isinstance(event, ContextRendered):
        return "comes after its session has ended"
    if isinstance(event, NotepadEdited):
        text = before.content if isinstance(before, NotepadDocument) else ""
        if _length_after(text, event) > MOST_NOTEPAD:
            return f"makes a notepad of more than {MOST_NOTEPAD:,} characters"
    if isinstance(event, PreferenceForgotten) and not (isinstance(before, Preference) and not before.forgotten):
        return "forgets a preference that is not there"
    if isinstance(event, TextEdited) and isinstance(before, Text):
        size = len(before.content) + len(event.content)
        return f"makes a text of more than {MOST_NOTEPAD:,} characters" if size > MOST_NOTEPAD else ""
    if isinstance(event, TodoWritten) and isinstance(before, TodoDocument):
        plan = evolve(before, event)
        if plan is not None and len(plan.todos) > MAX_ITEMS:
            return f"makes a todo list of more than {MAX_ITEMS} items"
    return ""


def _length_after(text: str, edit: NotepadEdited) -> int:
    """Return how long a notepad is after an edit, without making it: a short edit may make a very long text."""
    if edit.operation == "delete":
        return len(text)  # at most
    if edit.operation != "find_replace" or not edit.find:
        return len(text) + len(edit.content)
    count = text.count(edit.find) if edit.replace_all else 1
    return len(text) + count * (len(edit.replace) - len(edit.find))
