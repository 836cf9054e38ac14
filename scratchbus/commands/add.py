"""Add observations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from scratchbus.commands.first_attempts import (
    append_with_old_digests,
    check_keys,
    digest_of_addition,
    earlier_additions,
    recall_batch,
)
from scratchbus.commands.observations import left_by
from scratchbus.commands.references import check_blockers, check_known_ids, check_trigger
from scratchbus.domain.checks import check_size
from scratchbus.domain.event import ENVELOPE
from scratchbus.domain.given_observation import unpack_observation
from scratchbus.domain.models import checked, default_of, optional_fields, refusal_in
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import GUARDS, GivenObservation, NewObservation
from scratchbus.domain.page_events import Added, Repeated
from scratchbus.domain.schedule import blockers_in_head, end_after, start_of, varying_times
from scratchbus.domain.time_checks import check_end
from scratchbus.domain.times import settle
from scratchbus.domain.values import check_source, millis
from scratchbus.engine.steps import Step
from scratchbus.errors import EventIdReused, InvalidField, InvalidInput, InvalidTTL, TooLarge, UnknownField, shown
from scratchbus.eventlog import ids as event_ids
from scratchbus.eventlog.append import append
from scratchbus.eventlog.bus_log import bounded_event_id
from scratchbus.eventlog.causes import reasons, untraced_reasons
from scratchbus.eventlog.codec import encode_body, encode_fields
from scratchbus.eventlog.writes import Draft, Ids, Op, Write, Written
from scratchbus.projections import scratch_page
from scratchbus.readmodel import scope
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.scope import Core, check_registry, type_of
from scratchbus.settings import Settings
from scratchbus.telemetry import tracing

if TYPE_CHECKING:
    from scratchbus.domain.registry import ObservationType


def add(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[Observation]:
    """Add an observation, or count it as a repeat of the open one with its dedupe key.

    `arguments` has the arguments of `Page.add` by name; those that it does not have are under "unknown".
    """
    if not isinstance(arguments["type"], str):
        arguments = unpack_observation(arguments)
    for name in arguments["unknown"]:
        raise UnknownField(name, NewObservation.model_fields)
    parsed = parse(arguments)
    return (yield from add_all(core, page, [parsed], parsed.get("event_id")))[0]


def parse(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `add`, validated and converted, without those that are None or unknown.

    Raises InvalidInput for the first invalid value. `decide` makes the checks that depend on the type, the settings or
    the time.
    """
    given = dict.fromkeys(_REQUIRED)
    for name, value in arguments.items():
        if value is not None:
            given[name] = value
    try:
        return _VALIDATOR.validate_python(given)  # type: ignore[no-any-return]  # a dict of the arguments
    except ValidationError as error:
        raise refusal_in(error) from None


def name_item(error: InvalidInput, index: int, total: int, noun: str = "item", done: str = "written") -> InvalidInput:
    """Return an error about one item of a batch, with its number."""
    if total > 1:
        error.index = index  # type: ignore[attr-defined]  # like the error for an item that the append script refuses
        error.args = (f"{noun} {index + 1} of {total}: {error}; nothing was {done}",)
    return error


def add_all(core: Core, page: str, items: Sequence[dict[str, Any]], event_id: str | None) -> Step[list[Observation]]:
    """Add parsed observations in one batch. With `event_id`, the ids of its events derive from that one."""
    batch_size = len(items) if event_id is not None else 1
    bound = core.log.id_bounds.get(core.log.page(page).keys.shard)
    first = event_id or (next(event_ids.words) + bound if bound else (yield from bounded_event_id(core.log, page)))
    if time.monotonic() - core.registry_checked > scope.REGISTRY_AGE:
        yield from check_registry(core)
    settings, now, types = core.settings, datetime.now(UTC), core.registry.types
    cause_fields = untraced_reasons() if tracing.active is None else reasons()
    writes: list[Write] = []
    evidence: list[str] = []
    blockers: list[str] = []
    try:
        for index, arguments in enumerate(items):
            kind = types.get(arguments["type"]) or (yield from type_of(core, arguments["type"]))
            if "remind_on" in arguments:
                yield from check_trigger(core, arguments["remind_on"])
            chosen_id = event_id or arguments.get("event_id")
            id = arguments.get("event_id") or (f"{first}/{index}" if index else first)
            ids = Ids(event_ids.new_id(), id, batch_size if chosen_id else 0)
            writes.append(decide(now, ids, settings, kind, arguments, page, cause_fields))
            evidence += arguments.get("evidence", ())
            blockers += arguments.get("blocked_by", ())
        if evidence:
            yield from check_known_ids(core, page, evidence)
        if blockers:
            yield from check_blockers(core, page, blockers)
    except InvalidInput as error:
        types = core.registry.types  # a newer registry, if a type of an item was unknown
        earlier = yield from earlier_additions(
            core, page, items, event_id,
            lambda then, ids, given: decide(then, ids, settings, types[given["type"]], given, page, cause_fields),
        )  # fmt: skip
        if earlier is not None:
            return earlier
        if len(writes) < len(items):
            name_item(error, len(writes), len(items))
        raise
    prepared: dict[str, Observation] = {}
    room, on_full = settings.max_observations, settings.on_full
    meanwhile = partial(_prepare, page, writes, prepared) if len(writes) > 1 else None
    try:
        appended = yield from append(core.log, page, writes, room=room, on_full=on_full, meanwhile=meanwhile)
    except EventIdReused as reused:
        if not writes[0].digest:
            raise
        appended = yield from append_with_old_digests(core, page, writes, items, batch_size, reused)
    if appended.recalled is not None:
        found = yield from recall_batch(core, page, appended.recalled)
        check_keys(writes, found)
        return found
    subjects: list[str] = []
    added: dict[str, Observation] = {}
    outdated: dict[str, Written] = {}
    for write, row in zip(writes, appended.written, strict=True):
        subjects.append(row.subject)
        if row.kind == "added":
            draft, before = write.event_or_draft, prepared.get(row.subject)
            fields = draft.fields if isinstance(draft, Draft) else draft.__dict__
            added[row.subject] = scratch_page.added(row.subject, page, draft.type, fields, row.position, before)
        if row.kind != "added" or row.version > 1:
            outdated[row.subject] = row
    if outdated:
        current = yield from get(core.log, page, list(outdated), core.fresh)
        for subject, row in outdated.items():
            added[subject] = yield from left_by(core, page, row, current.get(subject))
    for id, displaced in appended.displaced.items():
        added[id] = added[id].model_copy(update={"displaced": displaced})
    return list(map(added.__getitem__, subjects))


def _prepare(page: str, writes: list[Write], prepared: dict[str, Observation]) -> None:
    """Build the observations, still without positions, while the engine adds them."""
    for write in writes:
        draft = write.event_or_draft
        if isinstance(draft, Draft):
            prepared[draft.subject] = scratch_page.added(draft.subject, page, draft.type, draft.fields, None)


def decide(
    now: datetime,
    ids: Ids,
    settings: Settings,
    kind: ObservationType,
    arguments: Mapping[str, Any],
    page: str,
    cause_fields: Mapping[str, Any],
) -> Write:
    """Return the write that adds an observation, with the defaults of its type and of the settings.

    `arguments` is the result of `parse`. Raises InvalidInput.
    """
    value_of, lifecycle, by = arguments.get, kind.lifecycle, settings.source
    source = value_of("source") or by or check_source(None)
    start = start_of(now, value_of) if "not_before" in arguments or "every" in arguments else None
    ttl, expires_at = _lifetime(now, settings, kind, value_of("ttl"), value_of("expires_at"))
    if start is not None:
        expires_at = end_after(start, now, ttl, expires_at, recurs="every" in arguments)
        ttl = None
    status = value_of("status", kind.initial_status)
    fence, argument = value_of("fence"), ""
    due = start or (settle(value_of("remind_at")) if "remind_at" in arguments else None)
    _check_values(settings, kind, status, value_of)
    status_class = lifecycle.statuses[status]
    fields = {"by": by or source, **cause_fields}  # the body, without default values, even if the caller gave them
    for name, value in arguments.items():
        if name not in _DECIDED and value != _DEFAULTS.get(name):
            fields[name] = value  # noqa: PERF403  # a comprehension would be another call
    if due is not None:
        fields["remind_at"] = due
    if start is not None:
        fields["not_before"] = start
    if by is not None and source != by:
        fields["source"] = source
    if kind.default_owner is not None:
        fields.setdefault("owner", kind.default_owner)
    if status != _STATUS:
        fields["status"] = status
    if status_class != _STATUS_CLASS:
        fields["status_class"] = status_class
    if kind.priority != _PRIORITY:
        fields["priority"] = kind.priority
    if ttl is not None:
        fields["ttl"] = ttl
    elif expires_at is not None:
        fields["expires_at"] = expires_at
    if kind.dedupe or "dedupe_key" in arguments:
        argument = _decide_key(kind, source, fields)
    blocked_by = fields.get("blocked_by")
    return Write(  # by position: keywords take four times as long
        Draft(Added, ids.event, page, ids.subject, kind.name, fields),
        Op.ADD,
        digest_of_addition(page, arguments, by, ids.batch_size) if ids.batch_size else "",
        None,  # version: it must be new
        None,  # allowed
        status,
        status_class,
        kind.priority,
        f"+{ttl}" if ttl is not None else str(millis(expires_at)) if expires_at is not None else "",
        str(millis(due)) if due is not None else "",
        argument,
        fence,
        fields.get("tags", ()),
        blocked_by if start is None else blockers_in_head(ids.subject, value_of("every"), blocked_by),
        "" if start is None else str(millis(start)),
        encode_fields(fields),
        not (ids.batch_size or argument or due) and fence is None,
        lifecycle=lifecycle,
        varying=varying_times(arguments) if ids.batch_size else frozenset(),
    )


def _decide_key(kind: ObservationType, source: str, fields: dict[str, Any]) -> str:
    """Add the type's dedupe key to the fields if they have none; return the argument of the write, "" without a key.

    The argument holds the key, and the body of the `repeated` event in case an open observation has it already.
    """
    if "dedupe_key" not in fields and "every" not in fields:
        key = kind.dedupe_key_of(fields | {"type": kind.name, "source": source})
        if key is not None:
            fields["dedupe_key"] = key
    if "dedupe_key" not in fields:
        return ""
    repeated = encode_body(Repeated(**{name: fields[name] for name in _REPEATED & fields.keys()}))
    return f"{len(repeated)}:{repeated.decode()}{fields['dedupe_key']}"


def _check_values(settings: Settings, kind: ObservationType, status: object, value_of: Callable[..., Any]) -> None:
    """Raise InvalidInput for values that the type or the settings do not allow."""
    content, tags, limit = value_of("content"), value_of("tags", ()), min(kind.max_content, settings.max_content)
    if status not in kind.lifecycle.initial:
        known = ", ".join(kind.lifecycle.initial)
        raise InvalidField("status", f"{shown(status)} cannot be the first status; start with: {known}")
    if 4 * len(content) > limit:  # no character has more than 4 bytes
        check_size("content", content, limit)
    if len(tags) > kind.max_tags:
        raise TooLarge("tags", len(tags), kind.max_tags, "tags", f"give fewer, or raise max_tags of {kind.name}")
    if kind.context_schema is not None:
        kind.check_context(value_of("context", {}))
    if kind.metadata_schema is not None:
        kind.check_metadata(value_of("metadata", {}))


def _lifetime(
    now: datetime, settings: Settings, kind: ObservationType, ttl: int | str | None, expires_at: datetime | None
) -> tuple[int | None, datetime | None]:
    """Return the lifetime (ms) or the end, whichever is known; both are None if it never expires."""
    if expires_at is not None:
        if ttl is not None:
            raise InvalidTTL("ttl: give ttl or expires_at, not both")
        return None, check_end(expires_at, now)
    if ttl is None:
        return kind.ttl_ms(settings.default_ttl_ms), None
    return ttl if isinstance(ttl, int) else None, None


_REPEATED = Repeated.model_fields.keys() & Added.model_fields.keys() - ENVELOPE
"""The fields that a `repeated` event takes from the addition that it replaces."""

_DEFAULTS = {name: default_of(field) for name, field in Added.model_fields.items() if not field.is_required()}
"""The default values of an `added` event."""

_STATUS, _STATUS_CLASS, _PRIORITY = map(_DEFAULTS.__getitem__, ("status", "status_class", "priority"))
"""The default values of the fields that the type decides."""

_DECIDED = frozenset({*GUARDS, "type", "source", "status", "ttl", "expires_at"})
"""The arguments that are not in the body of the event, or not always as given."""

_REQUIRED = [name for name, field in NewObservation.model_fields.items() if field.is_required()]
_VALIDATOR = optional_fields({name: checked(field) for name, field in GivenObservation.model_fields.items()})
"""Validates all arguments of `add` in one call."""
