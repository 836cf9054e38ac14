"""Checks of single events, by the limits that the live bus has for what it appends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from scratchbus.archive.importing import memories
from scratchbus.archive.importing.limits import LONGEST_MS, check_same, check_text
from scratchbus.domain.checks import (
    MAX_EVIDENCE,
    MAX_KEY,
    MAX_LABEL,
    as_time,
    bytes_of,
    check_action,
    check_content,
    check_evidence,
    check_label,
    check_object,
    check_reason,
    check_tags,
    check_trigger,
)
from scratchbus.domain.event import Event
from scratchbus.domain.events import (
    Added,
    Claimed,
    ContextRendered,
    Due,
    Erased,
    Linked,
    Released,
    Repeated,
    StatusChanged,
    TypesChanged,
    Updated,
)
from scratchbus.domain.lifecycle import ARCHIVED, STATUS_CLASSES
from scratchbus.domain.memory_events import (
    NoteAdded,
    NoteDeleted,
    NotepadEdited,
    NotepadWritten,
    NoteUpdated,
    RunEnded,
    ScratchpadWritten,
    SessionEnded,
    SessionSpawned,
    SessionStarted,
    TaskBegun,
    TaskEnded,
    TodoWritten,
)
from scratchbus.domain.position import Position
from scratchbus.domain.registry import HIGHEST_PRIORITY
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.domain.values import (
    MAX_BYTES,
    MOST_TIMES,
    check_confidence,
    check_id,
    check_page,
    check_source,
    check_whole,
    is_type_name,
)
from scratchbus.errors import InvalidField, shown
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.projections.contexts import subject_of
from scratchbus.projections.table import check_subject

_MOST_TEXT = 8 * 1024 * 1024
_RESERVED = ("cleared", "erased")  # what the append script calls a head that is off the page
_EVENT_ID = re.compile(r"[\x21-\x7e]{1,1000}")  # callers' own have up to 200; ours are made of theirs, and longer
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_SUBJECTS: dict[str, tuple[type[Event], ...]] = {
    r"notepad": (NotepadWritten, NotepadEdited),
    r"note_[0-9]{1,16}": (NoteAdded, NoteUpdated, NoteDeleted),
    r"session": (SessionSpawned, SessionStarted, SessionEnded),
    r"todo": (TodoWritten,),
    r"task_[0-9]{1,15}": (TaskBegun, TaskEnded),
    r"scratchpad": (ScratchpadWritten, RunEnded),
    r"types": (TypesChanged,),
}
_SUBJECT_OF = {kind: re.compile(pattern) for pattern, kinds in _SUBJECTS.items() for kind in kinds}
"""What the subjects of events look like that are about no observation."""


def check_event(event: Event) -> None:
    """Raise InvalidInput for an event that nobody could have appended to a live bus."""
    if not _EVENT_ID.fullmatch(event.id):
        raise InvalidField("id", f"{shown(event.id)} is not an event id")
    check_page(event.page)
    _check_about(event)
    check_source(event.by, "by")
    if event.cause is not None:
        Position.parse(event.cause)
    if event.traceparent is not None and not _TRACEPARENT.fullmatch(event.traceparent):
        raise InvalidField("traceparent", f"{shown(event.traceparent)} is not a W3C trace context")
    check = _CHECKS.get(type(event))
    if check is not None:
        check(event)


def _check_about(event: Event) -> None:
    """Check what an event is about, and of which type that is."""
    if (event.page == SYSTEM_PAGE) != isinstance(event, TypesChanged):
        raise InvalidField("page", f"{event.kind} does not belong on page {event.page!r}")
    if isinstance(event, Erased):
        is_own, has_type = check_subject(event.subject) == event.subject, bool(event.type)
    elif isinstance(event, ContextRendered):
        viewer = f"session:{event.session}" if event.session is not None else f"agent:{event.agent or event.by}"
        is_own, has_type = event.subject == subject_of(viewer), False
    elif (pattern := _SUBJECT_OF.get(type(event))) is not None:
        is_own, has_type = pattern.fullmatch(event.subject) is not None, False
    else:
        is_own, has_type = check_id(event.subject) == event.subject, True
    if not is_own:
        raise InvalidField("subject", f"{shown(event.subject)} is not a valid subject of {event.kind}")
    if not (is_type_name(event.type) if has_type else event.type == ""):
        raise InvalidField("type", f"{shown(event.type)} is not the name of a type")


def _check_span(field: str, ms: int | None, least: int = 1) -> None:
    if ms is not None:
        check_whole(field, ms, least, LONGEST_MS)


def _check_end(field: str, at: datetime | None) -> None:
    if at is not None:
        as_time(field, at)


def _check_status(status: str, status_class: str) -> None:
    if not is_type_name(status) or status in _RESERVED:
        raise InvalidField("status", f"{shown(status)} is not the name of a status")
    if status_class not in STATUS_CLASSES or (status == ARCHIVED and status_class != "final"):
        raise InvalidField("status_class", f"{shown(status_class)} is not the class of {status!r}")


def _check_evidence(ids: list[str]) -> None:
    if ids:
        check_same("evidence", ids, check_evidence(ids))


def _check_fields(changes: Mapping[str, Any]) -> None:
    """Check the fields that an observation begins with, and that an update may replace."""
    for name, value in changes.items():
        match name:
            case "content":
                check_content(value, MAX_BYTES)
            case "owner" if value is not None:
                check_label(name, value)
            case "confidence":
                check_confidence(value)
            case "context" | "metadata":
                check_same(name, value, check_object(name, value))
            case "tags":
                check_same(name, value, check_tags(value, MAX_LABEL))
            case "expires_at":
                _check_end(name, value)


def _check_added(event: Added) -> None:
    _check_fields({name: event.__dict__[name] for name in Updated.model_fields["changes"].annotation.__annotations__})
    if event.source is not None:
        check_source(event.source)
    _check_status(event.status, event.status_class)
    if event.status_class != "open":
        raise InvalidField("status_class", f"{event.status!r} is {event.status_class}, which no observation starts as")
    check_whole("priority", event.priority, 0, HIGHEST_PRIORITY)
    _check_span("ttl", event.ttl)
    check_whole("times", event.times, 1, MOST_TIMES)
    _check_evidence(event.evidence)
    _check_end("remind_at", event.remind_at)
    if event.remind_on is not None:
        check_same("remind_on", event.remind_on, check_trigger(event.remind_on))
    if event.dedupe_key is not None and not 0 < bytes_of("dedupe_key", event.dedupe_key) <= MAX_KEY:
        raise InvalidField("dedupe_key", f"must be 1 to {MAX_KEY} bytes long")


def _check_repeated(event: Repeated) -> None:
    check_whole("times", event.times, 1, MOST_TIMES)
    _check_span("ttl", event.ttl)
    _check_end("expires_at", event.expires_at)
    _check_evidence(event.evidence)


def _check_status_changed(event: StatusChanged) -> None:
    _check_status(event.status, event.status_class)
    check_reason(event.reason)
    _check_span("archive_after", event.archive_after, 0)
    _check_span("ttl", event.ttl, 0)
    for id in event.chain:
        check_id(id)
    for field in ("chain", "seen_by", "followed"):
        texts = event.__dict__[field]
        if len(texts) > MAX_EVIDENCE:
            raise InvalidField(field, f"has {len(texts):,} entries, the limit is {MAX_EVIDENCE:,}")
        for text in texts:
            check_text(field, text, MAX_BYTES)


def _check_claimed(event: Claimed) -> None:
    check_label("holder", event.holder)
    if "|" in event.holder:
        raise InvalidField("holder", f"{shown(event.holder)} contains |, which separates the fields of a head")
    _check_span("ttl", event.ttl)
    if event.fence is not None:
        check_whole("fence", event.fence, 1)
    if event.work is not None:
        check_label("work", event.work)


def _check_released(event: Released) -> None:
    _check_span("backoff", event.backoff, 0)
    check_reason(event.reason)


def _check_erased(event: Erased) -> None:
    check_reason(event.reason)
    places = [Position.parse(place) for place in event.positions]
    if not places or any(
        place.shard or str(place) != text for place, text in zip(places, event.positions, strict=True)
    ):
        raise InvalidField("positions", "are not the stream ids of the erased events")
    if any(place.seq >= event.seq or place.ms > event.ms for place in places):
        raise InvalidField("positions", "are not all before the tombstone")
    check_whole("version", event.version, len(set(places)) + 1)


def _check_context(event: ContextRendered) -> None:
    check_label("subject", event.subject)
    check_whole("tokens", event.tokens, 0)
    for id, version in event.observations.items():
        check_same("observations", id, check_id(id))
        check_whole("observations", version, 1)


def _check_types(event: TypesChanged) -> None:
    check_text("text", event.text, _MOST_TEXT)
    parse_registry(event.text, "types")


_CHECKS: dict[type[Event], Callable[[Any], object]] = {
    Added: _check_added,
    Updated: lambda event: _check_fields(event.changes),
    Repeated: _check_repeated,
    StatusChanged: _check_status_changed,
    Claimed: _check_claimed,
    Released: _check_released,
    Linked: lambda event: check_action(event.action),
    Due: lambda event: event.trigger is None or Position.parse(event.trigger),
    Erased: _check_erased,
    TypesChanged: _check_types,
    ContextRendered: _check_context,
    **memories.CHECKS,
}
"""What each kind of event says; those that say nothing more are left out."""
