"""Adding observations."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast, get_origin

from pydantic import ValidationError
from pydantic_core import SchemaValidator, core_schema

from scratchbus.commands.outcome import check_statuses, recall_all
from scratchbus.domain.checks import check_end, check_size
from scratchbus.domain.digest import digest_of
from scratchbus.domain.events import ENVELOPE, Added, Repeated
from scratchbus.domain.observation import GUARDS, GivenObservation, NewObservation, Observation
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.values import check_event_id, check_source, checked, millis, refusal_in, trusted
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import EventIdReused, InvalidField, InvalidTTL, TooLarge, UnknownField, key_text, shown
from scratchbus.eventlog.append import MAX_BATCH, append, fresh_id
from scratchbus.eventlog.because import reasons
from scratchbus.eventlog.codec import encode_body
from scratchbus.eventlog.ids import new_id
from scratchbus.eventlog.retries import bound_of
from scratchbus.eventlog.writes import Op, Write, Written
from scratchbus.projections import scratch_page
from scratchbus.readmodel import scope
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.relations import find_pages, may_be_archived
from scratchbus.readmodel.scope import Core, refresh_registry, type_of
from scratchbus.settings import Settings


def add(core: Core, page: str, given: Mapping[str, Any]) -> Step[Observation]:
    """Add an observation, or count it as a repeat of the open one with its dedupe key.

    `given` are the arguments of `Page.add` by name, those that it does not know under "unknown".
    """
    if not isinstance(given["type"], str):
        given = _spread(given)
    for name in given["unknown"]:
        raise UnknownField(name, NewObservation.model_fields)
    said = parse(given)
    return (yield from _add_all(core, page, [said], said.get("event_id")))[0]


def parse(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what callers of `add` give, each value as it is kept, without what is None or no argument of `add`.

    Raises InvalidInput for the first value that is not acceptable. What depends on the type, the settings or the time
    is still to be decided.
    """
    said = dict.fromkeys(_REQUIRED)
    for name, value in given.items():
        if value is not None:
            said[name] = value
    try:
        return _SAID.validate_python(said)  # type: ignore[no-any-return]  # it is a dict of these
    except ValidationError as error:
        raise refusal_in(error) from None


def _spread(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of an `add` whose first argument is the whole observation.

    Other arguments replace its fields. Raises InvalidField.
    """
    whole = given["type"]
    if not isinstance(whole, NewObservation | Mapping):
        return given
    fields = whole.model_dump(include=whole.model_fields_set) if isinstance(whole, NewObservation) else whole
    beside = {name: value for name, value in given.items() if value is not None and (name, value) != ("times", 1)}
    if fields.get("type") is None:
        raise InvalidField("type", "is missing")
    if fields.get("content") is None and "content" not in beside:
        raise InvalidField("content", "is missing")
    unknown = {key_text(name): value for name, value in fields.items() if name not in NewObservation.model_fields}
    return {**given, **fields, **beside, "type": fields["type"], "unknown": {**given["unknown"], **unknown}}


def add_many(core: Core, page: str, items: Sequence[NewObservation], event_id: str | None) -> Step[list[Observation]]:
    """Add a batch: all of it or nothing."""
    if not isinstance(items, Collection):
        raise InvalidField("items", f"{shown(items)} is not a list of NewObservation")
    for index, item in enumerate(items):
        if not isinstance(item, NewObservation):
            raise InvalidField(
                f"items[{index}]", f"{shown(item)} is not a NewObservation; write NewObservation(type=…, content=…)"
            )
    if len(items) > MAX_BATCH:
        raise TooLarge("batch", len(items), MAX_BATCH, "observations")
    own = sum(item.event_id is not None for item in items)
    if own not in (0, len(items)) or (own and event_id is not None):
        raise InvalidField("event_id", "give every item of a batch one, or the batch as a whole, or none")
    if own and len({item.event_id for item in items}) < len(items):
        raise InvalidField("event_id", "two items of the batch have the same one; give each its own")
    if not items:
        return []
    parsed = [parse(item.__dict__) for item in items]
    if event_id is not None:
        check_event_id(event_id)
    return (yield from _add_all(core, page, parsed, event_id))


def _add_all(core: Core, page: str, items: Sequence[dict[str, Any]], event_id: str | None) -> Step[list[Observation]]:
    """Add parsed observations in one batch; with `event_id` they share that of their caller."""
    sharing = len(items) if event_id is not None else 1
    first = event_id or (yield from fresh_id(core.log, page))
    if time.monotonic() - core.registry_checked > scope.REGISTRY_AGE:
        yield from refresh_registry(core)
    settings, now, why, types = core.settings, datetime.now(UTC), reasons(), core.registry.types
    writes: list[Write] = []
    evidence: list[str] = []
    for index, said in enumerate(items):
        kind = types.get(said["type"]) or (yield from type_of(core, said["type"]))
        if "remind_on" in said:
            yield from _check_known(core, said["remind_on"])
        own = event_id or said.get("event_id")
        id = said.get("event_id") or (f"{first}/{index}" if index else first)
        writes.append(decide(now, Ids(new_id(), id, sharing if own else 0), settings, kind, said, page, why))
        evidence += said.get("evidence", ())
    if evidence:
        yield from _check_there(core, page, evidence)
    done = yield from append(core.log, page, writes, room=settings.max_observations, on_full=settings.on_full)
    if done.recalled is not None:
        found = yield from recall_all(core, page, done.recalled)
        _check_keys(writes, found)
        return found
    subjects: list[str] = []
    added: dict[str, Observation] = {}
    stale: dict[str, Written] = {}
    for write, row in zip(writes, done.written, strict=True):
        position, version, kind_of_event, subject, _ = row
        subjects.append(subject)
        if kind_of_event == "added":
            added[subject] = scratch_page.added(cast(Added, write.event), position)
        if kind_of_event != "added" or version > 1:
            stale[subject] = row
    if stale:
        added |= yield from get(core.log, page, list(stale), core.fresh)
        for subject, row in stale.items():
            if subject not in added:  # repeated here, and cleared by someone else before it was read
                (added[subject],) = yield from recall_all(core, page, [row.position])
    return list(map(added.__getitem__, subjects))


def _check_keys(writes: list[Write], found: list[Observation]) -> None:
    """Raise EventIdReused for a retry, under an id of our own making, that repeats another key than it did.

    An event that counts a repeat does not have the key.
    """
    for write, observation in zip(writes, found, strict=True):
        if bound_of(write.event.id) is not None and cast(Added, write.event).dedupe_key != observation.dedupe_key:
            raise EventIdReused(writes[0].event.id)


def _check_there(core: Core, page: str, evidence: list[str]) -> Step[None]:
    """Raise InvalidField for evidence that was never on any page of the bus.

    What was cleared, and then archived, is looked for in the archive, where there is one.
    """
    keys, ids = core.log.keys(core.log.shard(page)), list(dict.fromkeys(evidence))
    heads = yield from ask(keys.shard, "HMGET", keys.heads(page), *ids)
    ids = [id for id, head in zip(ids, heads, strict=True) if head is None]
    if ids:
        there = yield from find_pages(core.log, ids)
        ids = [id for id in ids if id not in there]
    for id in ids:
        if not (yield from may_be_archived(core.log, id)):
            raise InvalidField(
                "evidence", f"{id} is not on any page of this bus; pass ids that `add` or `list` returned"
            )


def _check_known(core: Core, trigger: Mapping[str, Any]) -> Step[None]:
    """Raise UnknownType or InvalidField for a reminder that would wait for what cannot happen."""
    if "type" in trigger:
        yield from type_of(core, trigger["type"])
    if "status" in trigger:
        yield from check_statuses(core, "remind_on.status", [trigger["status"]])


class Ids(NamedTuple):
    """The ids of what is added and of its event, and how many events share the one that their caller gave, 0 for none.

    In a batch, each event gets the caller's id with a number appended.
    """

    subject: str
    event: str
    sharing: int = 0


def decide(
    now: datetime,
    ids: Ids,
    settings: Settings,
    kind: ObservationType,
    said: Mapping[str, Any],
    page: str,
    why: Mapping[str, Any],
) -> Write:
    """Return the write that adds what was said of an observation, with the defaults of its type and the settings.

    `said` is what `parse` returns. Raises InvalidInput.
    """
    given = said.get
    life = kind.lifecycle
    source = given("source") or settings.source or check_source(None)
    by = settings.source or source
    ttl, expires_at = _life_span(now, settings, kind, given("ttl"), given("expires_at"))
    status = given("status") or kind.initial_status
    wake, fence, argument = given("remind_at"), given("fence"), ""
    values = {
        **_UNSAID,
        **why,
        "owner": kind.default_owner,
        **said,
        "id": ids.event,
        "page": page,
        "subject": ids.subject,
        "by": by,
        "source": None if source == by else source,
        "status": status,
        "priority": kind.priority,
        "ttl": ttl,
        "expires_at": expires_at,
    }
    for name, make in _EMPTY:
        if name not in said:
            values[name] = make()
    for name in GUARDS:
        values.pop(name, None)
    _check_type(settings, kind, values)
    status_class = values["status_class"] = life.statuses[status]
    key = given("dedupe_key")
    if key is None and kind.dedupe:
        key = values["dedupe_key"] = kind.dedupe_key_of(values | {"source": source})
    if key is not None:
        again = encode_body(Repeated(**{name: values[name] for name in _REPEATED}))
        argument = f"{len(again)}:{again.decode()}{key}"
    return Write(
        trusted(Added, values),
        Op.ADD,
        _digest(page, said, settings, ids.sharing) if ids.sharing else "",
        status=status,
        status_class=status_class,
        priority=kind.priority,
        expires=f"+{ttl}" if ttl is not None else str(millis(expires_at)) if expires_at is not None else "",
        wake=str(millis(wake)) if wake is not None else "",
        argument=argument,
        fence=fence,
        is_plain=not (ids.sharing or argument or wake) and fence is None,
        tags=values["tags"],
        lifecycle=life,
    )


def _digest(page: str, said: Mapping[str, Any], settings: Settings, sharing: int) -> str:
    """Return by what a retry with the caller's own event id is told from another addition."""
    return digest_of("add", page, {name: said[name] for name in said if name not in GUARDS}, settings.source, sharing)


def _check_type(settings: Settings, kind: ObservationType, values: Mapping[str, Any]) -> None:
    """Raise InvalidInput for what the type, or a setting, does not allow."""
    status, content, limit = values["status"], values["content"], min(kind.max_content, settings.max_content)
    if status not in kind.lifecycle.initial:
        known = ", ".join(kind.lifecycle.initial)
        raise InvalidField("status", f"{shown(status)} cannot be the first status; start with: {known}")
    if 4 * len(content) > limit:  # no character has more than 4 bytes
        check_size("content", content, limit)
    if len(values["tags"]) > kind.max_tags:
        raise TooLarge("tags", len(values["tags"]), kind.max_tags, "tags")
    if kind.context_schema is not None:
        kind.check_context(values["context"])
    if kind.metadata_schema is not None:
        kind.check_metadata(values["metadata"])


def _life_span(
    now: datetime, settings: Settings, kind: ObservationType, ttl: int | str | None, expires_at: datetime | None
) -> tuple[int | None, datetime | None]:
    """Return how long it lives (ms), or when it ends."""
    if expires_at is not None:
        if ttl is not None:
            raise InvalidTTL("ttl: give ttl or expires_at, not both")
        return None, check_end(expires_at, now)
    if ttl is None:
        return kind.ttl_ms(settings.default_ttl_ms), None
    return ttl if isinstance(ttl, int) else None, None


_REPEATED = Repeated.model_fields.keys() & Added.model_fields.keys() - ENVELOPE
"""What the event of a repeat says as that of the addition would have."""

_FIELDS = Added.model_fields.items()
_UNSAID = {name: field.default for name, field in _FIELDS if not field.is_required()}
"""What an `added` says by default."""

_EMPTY = [(name, get_origin(field.annotation) or list) for name, field in _FIELDS if field.default_factory]
"""The fields that are empty by default, each with what makes a new value."""

_REQUIRED = [name for name, field in NewObservation.model_fields.items() if field.is_required()]
_SAID = SchemaValidator(
    core_schema.typed_dict_schema(
        {
            name: core_schema.typed_dict_field(checked(field), required=False)
            for name, field in GivenObservation.model_fields.items()
        }
    )
)
"""The checks of all arguments of `add` in one call."""
