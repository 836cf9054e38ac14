"""Rules about the fields of events: live writes store each in one form only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from scratchbus.domain.checks import (
    MAX_EVIDENCE,
    check_action,
    check_content,
    check_label,
    check_object,
    check_reason,
    check_tags,
    check_text,
)
from scratchbus.domain.conversations import MAX_COMPACTED, check_path, check_role
from scratchbus.domain.events import EVENTS
from scratchbus.domain.items import check_name, check_namespace
from scratchbus.domain.lifecycle import StatusClass
from scratchbus.domain.observation_models import Changes, NewObservation, invalid
from scratchbus.domain.position import Position
from scratchbus.domain.preferences import check_key, check_preference
from scratchbus.domain.registry import HIGHEST_PRIORITY, MAX_TAGS
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.domain.relation_registry import parse_relations
from scratchbus.domain.runs import MAX_KEPT_STEPS
from scratchbus.domain.scratchpad import check_content as check_scratchpad
from scratchbus.domain.tasks import check_text as check_task
from scratchbus.domain.time_checks import as_time
from scratchbus.domain.todo import apply_changes, parse_changes
from scratchbus.domain.values import (
    MAX_BYTES,
    MAX_SAFE_INTEGER,
    SESSION_PAGES,
    check_id,
    check_page,
    check_source,
    is_type_name,
    page_of_session,
)
from scratchbus.errors import InvalidField, InvalidInput, shown
from scratchbus.projections.subjects import check_subject

MAX_NOTEPAD = 1_000_000
"""The most characters of a notepad, whatever the settings."""

_MAX_TYPES = 8 * 1024 * 1024  # characters of a registry
_MAX_MS = 100 * 365 * 86_400_000  # the longest duration
_RESERVED = ("cleared", "erased")  # the append script marks a head that has left the page with these


def _checked(check: Callable[..., object], *first: object, **named: object) -> Any:
    """Return the rule that a field equals what this check of live writes returns for it."""
    return Annotated[Any, PlainValidator(partial(check, *first, **named))]


def _check_status(status: str) -> str:
    if not is_type_name(status) or status in _RESERVED:
        raise InvalidField("status", f"{shown(status)} is not the name of a status")
    return status


def _check_relations(text: str) -> str:
    parse_relations(text, "relations")
    return text


_Span = Annotated[int, Field(ge=1, le=_MAX_MS)]
_Delay = Annotated[int, Field(ge=0, le=_MAX_MS)]
_Count = Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER)]
_Text = Annotated[str, Field(max_length=MAX_BYTES)]
_Texts = Annotated[list[_Text], Field(max_length=MAX_EVIDENCE)]
_LongText = Annotated[str, Field(max_length=MAX_NOTEPAD)]
_Counted = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
_Id = Annotated[str, AfterValidator(check_id)]
_Session = _checked(lambda name: page_of_session(name).removeprefix(SESSION_PAGES))

_RULES: dict[str, Any] = {
    "id": Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,1000}$")],  # callers' have up to 200; ours derive from them
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
    "relations.text": Annotated[_checked(_check_relations), Field(max_length=_MAX_TYPES)],
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
    "tags": _checked(check_tags, maximum=MAX_TAGS),
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
        _checked(lambda text: parse_registry(text, "types", is_published=True).text), Field(max_length=_MAX_TYPES)
    ],
    "observations": dict[_Id, _Count],
    "tokens": Annotated[int, Field(ge=0)],
    "notepad.content": _LongText,
    "find": _LongText,
    "replace": _LongText,
    "note.content": _checked(check_content, limit=4 * MAX_BYTES),  # its limit is in characters
    "note.tags": _checked(check_tags, maximum=MAX_EVIDENCE),
    "preference.key": _checked(check_key),
    "preference.text": _checked(check_preference),
    "item.namespace": _checked(lambda labels: list(check_namespace(labels))),
    "item.key": _checked(partial(check_name, "key")),
    "item.value": _checked(check_object, "value"),
    "item.text": _checked(check_text, "text"),
    "item.ttl": Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER)],
    "said_by": _checked(check_label, "said_by"),
    "session_spawned.session": _Session,
    "parent": _Session,
    "todos": _checked(lambda items: apply_changes([], parse_changes(items), merge=False)),
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
        list[Annotated[str, Field(pattern="^(turn|task)_[0-9]{1,16}$")]], Field(min_length=1, max_length=MAX_COMPACTED)
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
        list[Annotated[Any, PlainValidator(partial(check_object, "steps"))]], Field(max_length=MAX_KEPT_STEPS)
    ],
}
"""The values that live writes append, by field. `note.content` is the field of kinds that begin with `note_`."""


def check_fields(kind: str, fields: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a field that is not in the form in which live writes store it."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        stored = _checker_of(kind).validate_python(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0].get("ctx", {}).get("error")
        raise (problem if isinstance(problem, InvalidInput) else invalid(error, [])) from None
    for name, value in stored.items():
        if value != given[name]:
            raise InvalidField(name, f"{shown(given[name])} is not in the form the bus stores")


@cache
def _checker_of(kind: str) -> TypeAdapter[dict[str, Any]]:
    """Return the compiled rules of a kind of event, or of the changes of an update; they do not allow None."""
    names = EVENTS[kind].model_fields if kind in EVENTS else Changes.__annotations__
    group = kind.partition("_")[0]
    rules = {
        name: next((_RULES[key] for key in (f"{kind}.{name}", f"{group}.{name}", name) if key in _RULES), Any)
        for name in names
    }
    return TypeAdapter(TypedDict(kind, rules, total=False))  # type: ignore[operator]  # its fields are computed
