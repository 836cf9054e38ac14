"""Changing observations: their fields, their status, and taking them off the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from scratchbus.commands.outcome import before_of, finish, life_of, type_name, type_or_none
from scratchbus.domain.checks import (
    MAX_LABEL,
    as_time,
    check_content,
    check_end,
    check_guards,
    check_label,
    check_object,
    check_reason,
    check_tags,
)
from scratchbus.domain.digest import digest_of
from scratchbus.domain.events import Changes, Cleared, ReasonCode, StatusChanged, Updated
from scratchbus.domain.lifecycle import ARCHIVED, Lifecycle
from scratchbus.domain.observation import UPDATABLE, Observation
from scratchbus.domain.position import millis
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.values import MAX_BYTES, check_confidence, check_id
from scratchbus.engine.steps import Step
from scratchbus.errors import (
    Conflict,
    InvalidField,
    InvalidTransition,
    ReadOnlyField,
    TooLarge,
    UnknownField,
    shown,
)
from scratchbus.eventlog.append import MAX_BATCH, append
from scratchbus.eventlog.because import reasons
from scratchbus.eventlog.ids import new_event_id
from scratchbus.eventlog.writes import Write
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.scope import Core

_TRIES = 5
_REASONS: dict[str, ReasonCode] = {
    "pending_review": "reviewed",
    "resolved": "resolved",
    "archived": "archived",
    "active": "reopened",
}


def update(
    core: Core,
    page: str,
    id: str,
    changes: Mapping[str, Any],
    expected_version: int | None,
    event_id: str | None,
    fence: int | None,
) -> Step[Observation]:
    """Replace fields; a change of `status` follows the lifecycle. Both together are one atomic batch."""
    id, by = check_id(id), core.acting()
    check_guards(event_id, fence, expected_version)
    before, kind = yield from before_of(core, page, id, event_id)
    patch = _parse(changes, kind, core.max_content, datetime.now(UTC))
    given = digest_of("update", page, id, patch, expected_version) if event_id else ""
    status = patch.pop("status", None)
    first = event_id or new_event_id()
    writes: list[Write] = []
    if patch:
        expires = ""
        if "expires_at" in patch:
            expires = "0" if patch["expires_at"] is None else str(millis(patch["expires_at"]))
        event = Updated(
            id=first,
            page=page,
            subject=id,
            type=type_name(kind),
            by=by,
            **reasons(),
            changes=cast(Changes, patch),
        )
        writes.append(
            Write(
                event, "u", given, expected_version, expires=expires, argument=by, fence=fence,
                tags=patch.get("tags"), verb="updated", lifecycle=life_of(kind),
            )
        )  # fmt: skip
    if status is not None:
        own = f"{first}/status" if writes else first
        write = _transition(core, page, id, kind, before, status, None, own, given, fence)
        write.version = None if expected_version is None else expected_version + len(writes)
        writes.append(write)
    if not writes:
        raise InvalidField("changes", f"nothing to update; give one of: {', '.join(UPDATABLE)}")
    done = yield from append(core.log, page, writes, room=core.max_observations, on_full=core.on_full)
    return (yield from finish(core, page, before, writes, done))


def _parse(changes: Mapping[str, Any], kind: ObservationType | None, max_content: int, now: datetime) -> dict[str, Any]:
    """Return the fields to replace, checked. Raises ReadOnlyField, UnknownField, InvalidField, TooLarge."""
    known = Observation.model_fields.keys() | Observation.model_computed_fields.keys()
    for name in changes:
        if name not in UPDATABLE:
            raise (ReadOnlyField if name in known else UnknownField)(name, UPDATABLE)
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        match name:
            case "content":
                checked[name] = check_content(value, min(max_content, kind.max_content if kind else MAX_BYTES))
            case "owner":
                checked[name] = None if value is None else check_label("owner", value)
            case "confidence":
                checked[name] = check_confidence(value)
            case "tags":
                checked[name] = check_tags(value, kind.max_tags if kind else MAX_LABEL)
            case "expires_at":
                checked[name] = None if value is None else check_end(as_time(name, value), now)
            case "status":
                checked[name] = check_label(name, value)
            case _:
                checked[name] = check_object(name, value)
    if kind is not None:
        if "context" in checked:
            kind.check_context(checked["context"])
        if "metadata" in checked:
            kind.check_metadata(checked["metadata"])
    return checked


def transition(
    core: Core,
    page: str,
    id: str,
    verb: str,
    reason: str | None,
    expected_version: int | None,
    event_id: str | None,
    fence: int | None,
    then: Sequence[Write] = (),
) -> Step[Observation]:
    """Review, resolve, archive or reopen an observation, as its lifecycle allows; `then` follows in the same batch."""
    id, reason = check_id(id), check_reason(reason)
    check_guards(event_id, fence, expected_version)
    given = digest_of(verb, page, id, reason, expected_version) if event_id else ""
    for _ in range(_TRIES):
        before, kind = yield from before_of(core, page, id, event_id)
        status = _target(life_of(kind), verb)
        write = _transition(core, page, id, kind, before, status, reason, event_id, given, fence)
        write.version = expected_version
        try:
            writes = [write, *then]
            for index, each in enumerate(then, 1):
                each.event = each.event.placed(id=f"{write.event.id}/{index}")
            done = yield from append(core.log, page, writes, room=core.max_observations, on_full=core.on_full)
        except InvalidTransition as error:
            if error.from_status not in life_of(kind).sources_of(status):
                raise
            continue  # it was closed or reopened since it was read
        return (yield from finish(core, page, before, writes, done))
    raise Conflict(f"{id} keeps changing between open and closed; try again")


def _target(life: Lifecycle, verb: str) -> str:
    """Return the status that a verb means in a lifecycle."""
    name = {"review": "pending_review", "resolve": "resolved", "archive": ARCHIVED, "reopen": "active"}[verb]
    if name in life.statuses:
        return name
    closed = sorted(life.of_class("closed"))
    if verb == "resolve" and len(closed) == 1:
        return closed[0]
    if verb == "reopen":
        return life.initial[0]
    raise InvalidField(
        "status", f"lifecycle {life.name!r} has no {name!r}; use update(id, status=…) with: {', '.join(life.statuses)}"
    )


def _transition(
    core: Core,
    page: str,
    id: str,
    kind: ObservationType | None,
    before: Observation | None,
    status: str,
    reason: str | None,
    event_id: str | None,
    digest: str,
    fence: int | None,
) -> Write:
    life = life_of(kind)
    status_class = life.class_of(status)
    archive_after = None
    if status_class == "closed" and core.archive_after_ms is not None:
        archive_after = kind.archive_after_ms(core.archive_after_ms) if kind else core.archive_after_ms
    reopens = status_class == "open" and before is not None and before.status_class == "closed"
    sources = life.sources_of(status)
    if status_class == "open" and before is not None and before.status_class != "final":
        sources &= life.of_class("closed" if reopens else "open")  # only a reopened one begins a new life
    ttl = (kind.ttl_ms(core.default_ttl_ms) if kind else core.default_ttl_ms) or 0
    event = StatusChanged(
        id=event_id or new_event_id(),
        page=page,
        subject=id,
        type=type_name(kind),
        by=core.by,
        **reasons(),
        status=status,
        status_class=status_class,
        reason_code=_REASONS.get(status, "changed"),
        reason=reason,
        archive_after=archive_after,
        ttl=ttl if reopens else None,
    )
    return Write(
        event,
        "s",
        digest,
        allowed=sources,
        status=status,
        status_class=status_class,
        expires=f"+{ttl}" if reopens and ttl else "0" if reopens else "",
        wake=f"+{archive_after}" if archive_after is not None else "",
        argument=core.by,
        fence=fence,
        lifecycle=life,
    )


def clear_resolved(core: Core, page: str, ids: Sequence[str], event_id: str | None) -> Step[None]:
    """Take resolved observations off the page, all or none; their history stays. A text counts as a list of one."""
    if not isinstance(ids, Collection):
        raise InvalidField("ids", f"{shown(ids)} is not a list of observation ids")
    checked = list(dict.fromkeys(check_id(id) for id in ([ids] if isinstance(ids, str) else ids)))
    check_guards(event_id, None)
    if not checked:
        return
    if len(checked) > MAX_BATCH:
        raise TooLarge("ids", len(checked), MAX_BATCH, "observations")
    digest = digest_of("clear", page, checked) if event_id else ""
    first = event_id or new_event_id()
    found = yield from get(core.log, page, checked, core.fresh)
    writes = []
    for index, id in enumerate(checked):
        kind = (yield from type_or_none(core, found[id].type)) if id in found else None
        event = Cleared(id=f"{first}/{index}" if index else first, page=page, subject=id, by=core.by, **reasons())
        life = life_of(kind)
        writes.append(Write(event, "d", digest, allowed=life.of_class("closed"), verb="cleared", lifecycle=life))
    yield from append(core.log, page, writes)
