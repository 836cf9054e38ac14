"""Adding observations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from pydantic_core import PydanticUndefined

from scratchbus.commands.outcome import check_statuses, evolved, recall_all
from scratchbus.domain.checks import (
    MAX_KEY,
    as_time,
    bytes_of,
    check_content,
    check_end,
    check_evidence,
    check_guards,
    check_label,
    check_object,
    check_tags,
    check_trigger,
)
from scratchbus.domain.digest import digest_of
from scratchbus.domain.events import Added, Repeated
from scratchbus.domain.observation import NewObservation, Observation
from scratchbus.domain.position import millis
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.trusted import trusted
from scratchbus.domain.values import MOST_TIMES, NEVER, Duration, check_confidence, check_whole, duration_ms
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import InvalidField, InvalidTTL, TooLarge, UnknownField, shown
from scratchbus.eventlog.append import MAX_BATCH, append
from scratchbus.eventlog.because import reasons
from scratchbus.eventlog.codec import encode_body, encode_unplaced
from scratchbus.eventlog.ids import new_event_id, new_id
from scratchbus.eventlog.writes import Write
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.relations import find_pages, may_be_archived
from scratchbus.readmodel.scope import Core, type_of


def new(
    type: object,
    content: str,
    source: str | None,
    owner: str | None,
    status: str | None,
    confidence: float | None,
    context: Mapping[str, Any] | None,
    tags: Sequence[str] | None,
    ttl: Duration | None,
    expires_at: datetime | None,
    metadata: Mapping[str, Any] | None,
    dedupe_key: str | None,
    times: int,
    evidence: Sequence[str] | None,
    remind_at: datetime | None,
    remind_on: Mapping[str, Any] | None,
    unknown: Mapping[str, Any],
) -> NewObservation:
    """Return what `add` was given as one object, still unchecked. Raises UnknownField."""
    for name in unknown:
        raise UnknownField(name, NewObservation.model_fields)
    if not isinstance(type, str):
        raise InvalidField("type", f"{shown(type)} is not a text")
    return trusted(
        NewObservation,
        {
            "type": type, "content": content, "source": source, "owner": owner, "status": status,
            "confidence": confidence, "context": context, "tags": tags, "ttl": ttl, "expires_at": expires_at,
            "metadata": metadata, "dedupe_key": dedupe_key, "times": times, "evidence": evidence,
            "remind_at": remind_at, "remind_on": remind_on, "event_id": None,
        },
    )  # fmt: skip


def add(core: Core, page: str, new: NewObservation, event_id: str | None, fence: int | None) -> Step[Observation]:
    """Add an observation, or count it as a repeat of the open one with its dedupe key."""
    (observation,) = yield from _add_all(core, page, [new], event_id, fence)
    return observation


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
    return (yield from _add_all(core, page, items, event_id, None))


def _add_all(
    core: Core, page: str, items: Sequence[NewObservation], event_id: str | None, fence: int | None
) -> Step[list[Observation]]:
    check_guards(event_id, fence)
    sharing = len(items) if event_id is not None else 1
    first = event_id or new_event_id()
    writes = []
    for index, item in enumerate(items):
        kind = yield from type_of(core, item.type)
        check_guards(item.event_id, None)
        if item.remind_on is not None:
            yield from _check_known(core, check_trigger(item.remind_on) or {})
        write = plan_added(core, page, kind, item, event_id or item.event_id, fence, sharing)
        if item.event_id is None:
            write.event.placed(id=f"{first}/{index}" if index else first)
        writes.append(write)
    yield from _check_there(core, page, [id for write in writes for id in cast(Added, write.event).evidence])
    done = yield from append(core.log, page, writes, room=core.max_observations, on_full=core.on_full)
    if done.recalled is not None:
        return (yield from recall_all(core, page, done.recalled))
    shard = core.log.shard(page)
    added = {
        row.subject: evolved(None, write.event, row, shard)
        for write, row in zip(writes, done.written, strict=True)
        if row.kind == "added"
    }
    last = {row.subject: row for row in done.written}
    stale = [subject for subject, row in last.items() if row.kind != "added" or row.version > 1]
    if stale:
        added |= yield from get(core.log, page, stale, core.fresh)
    for subject in stale:
        if subject not in added:  # repeated here, and cleared by someone else before it was read
            (added[subject],) = yield from recall_all(core, page, [last[subject].position])
    return [added[row.subject] for row in done.written]


def _check_there(core: Core, page: str, evidence: list[str]) -> Step[None]:
    """Raise InvalidField for evidence that was never on any page of the bus; without any the engine is not asked.

    What was cleared, and then archived, is looked for in the archive, where there is one.
    """
    if not evidence:
        return
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


def plan_added(
    core: Core,
    page: str,
    kind: ObservationType,
    new: NewObservation,
    event_id: str | None,
    fence: int | None,
    sharing: int = 1,
) -> Write:
    """Return the write that adds an observation, one of `sharing` that share an event id. Raises InvalidInput."""
    event = _event_of(core, kind, new)
    body = encode_unplaced(event)
    event.placed(id=event_id or new_event_id(), page=page, subject=new_id(), type=kind.name)
    argument = ""
    if event.dedupe_key is not None:
        again = encode_body(
            Repeated(
                by=event.by,
                cause=event.cause,
                traceparent=event.traceparent,
                times=event.times,
                ttl=event.ttl,
                expires_at=event.expires_at,
                evidence=event.evidence,
            )
        )
        argument = f"{len(again)}:{again.decode()}{event.dedupe_key}"
    ttl, expires_at = event.ttl, event.expires_at
    return Write(
        event,
        "a",
        digest_of("add", page, _given(new, event), core.source, sharing) if event_id else "",
        status=event.status,
        status_class=event.status_class,
        priority=kind.priority,
        expires=f"+{ttl}" if ttl is not None else str(millis(expires_at)) if expires_at is not None else "",
        wake=str(millis(event.remind_at)) if event.remind_at is not None else "",
        argument=argument,
        fence=fence,
        tags=event.tags,
        body=body,
        lifecycle=kind.lifecycle,
    )


def _event_of(core: Core, kind: ObservationType, new: NewObservation) -> Added:
    """Return the event that adds an observation, without its envelope. Raises InvalidInput."""
    source = core.speaker(new.source)
    life = kind.lifecycle
    status = new.status or kind.initial_status
    if status not in life.initial:
        raise InvalidField(
            "status", f"{shown(status)} cannot be the first status; start with: {', '.join(life.initial)}"
        )
    ttl, expires_at = _life_span(core, kind, new)
    content = check_content(new.content, min(kind.max_content, core.max_content))
    context, metadata = check_object("context", new.context), check_object("metadata", new.metadata)
    kind.check_context(context)
    kind.check_metadata(metadata)
    evidence = check_evidence(new.evidence)
    owner = kind.default_owner if new.owner is None else check_label("owner", new.owner)
    key: Any = new.dedupe_key
    if key is None and kind.dedupe:
        key = kind.dedupe_key_of(
            {"content": content, "source": source, "owner": owner, "context": context, "metadata": metadata}
        )
    _check_key(key)
    times = check_whole("times", new.times, most=MOST_TIMES)
    by, why = core.source or source, reasons()
    return trusted(
        Added,
        {
            **_UNPLACED,
            **why,
            "by": by,
            "content": content,
            "source": None if source == by else source,
            "owner": owner,
            "status": status,
            "status_class": life.class_of(status),
            "confidence": 1.0 if new.confidence is None else check_confidence(new.confidence),
            "context": context,
            "tags": check_tags(new.tags, kind.max_tags),
            "metadata": metadata,
            "priority": kind.priority,
            "ttl": ttl,
            "expires_at": expires_at,
            "dedupe_key": key,
            "times": times,
            "evidence": evidence,
            "remind_at": None if new.remind_at is None else as_time("remind_at", new.remind_at),
            "remind_on": check_trigger(new.remind_on),
        },
    )


def _check_key(key: object) -> None:
    """Raise InvalidField for what can be no dedupe key; None is none."""
    if key is not None and not (isinstance(key, str) and 0 < bytes_of("dedupe_key", key) <= MAX_KEY):
        raise InvalidField("dedupe_key", f"must be 1 to {MAX_KEY} bytes long")


def _given(new: NewObservation, event: Added) -> dict[str, Any]:
    """Return what the caller gave, each value as it is kept: "1h" and 3600 are the same argument."""
    kept = {**event.__dict__, "source": new.source, "ttl": NEVER if event.ttl is None else event.ttl}
    return {name: kept[name] for name, value in new.__dict__.items() if value is not None and name != "event_id"}


_UNPLACED = {
    name: field.default for name, field in Added.model_fields.items() if field.default is not PydanticUndefined
}
"""What an `added` has before it is given its place in the log."""


def _life_span(core: Core, kind: ObservationType, new: NewObservation) -> tuple[int | None, datetime | None]:
    """Return how long it lives (ms), or when it ends."""
    if new.expires_at is not None:
        if new.ttl is not None:
            raise InvalidTTL("ttl: give ttl or expires_at, not both")
        return None, check_end(new.expires_at)
    if new.ttl is not None:
        return duration_ms(new.ttl), None
    return kind.ttl_ms(core.default_ttl_ms), None
