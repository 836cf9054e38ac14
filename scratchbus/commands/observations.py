"""Observations before a change and after it, with their types, statuses and lifetimes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, cast

from scratchbus.domain.event import Event
from scratchbus.domain.lifecycle import DEFAULT, Lifecycle
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import Added, Repeated, StatusChanged, Updated
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.errors import ArchiveError, InvalidField, NotFound, PositionLost, UnknownType, shown
from scratchbus.eventlog.stored_documents import decode_observation, decode_observations, encode_document
from scratchbus.eventlog.writes import Appended, Write, Written
from scratchbus.projections import scratch_page
from scratchbus.readmodel.history import known_events, walk_back
from scratchbus.readmodel.page_query import query_page
from scratchbus.readmodel.queries import get, read_head
from scratchbus.readmodel.scope import Core, newer_registry, type_of

if TYPE_CHECKING:
    from scratchbus.domain.events import AnyEvent
    from scratchbus.domain.registry import ObservationType

_FEW, _MANY = 8, 500  # events requested at once
_MAX_CACHED = 256  # observations


def read_target(
    core: Core, page: str, id: str, event_id: str | None
) -> Step[tuple[Observation | None, ObservationType | None]]:
    """Return the observation to change, and its type.

    With an event id, a missing observation is no error yet: this may be a retry of a write from before it was removed,
    or of the write that removed it. Its type is None if its head was dropped.
    """
    found = yield from get(core.log, page, [id], core.fresh)
    before = found.get(id)
    if before is not None:
        name = before.type
    elif event_id is None:
        raise not_found(page, id)
    else:
        head = yield from read_head(core.log, page, id)
        if head is None:
            return None, None
        name = head.type
    return before, (yield from type_or_none(core, name))


class Lifetime(NamedTuple):
    """The lifetime given to an observation: `ttl` in milliseconds, 0 for ever; or until `end`, None for never."""

    ttl: int | None = None
    end: datetime | None = None


def last_lifetime(core: Core, before: Observation) -> Step[Lifetime]:
    """Return the lifetime last given to an observation, from its events; its end if they cannot be read."""
    lifetime, at = Lifetime(end=before.expires_at), before.position.stream_id
    while at and lifetime.end is not None:
        try:
            events, at = yield from walk_back(core.log, before.page, before.id, at, _FEW)
        except (PositionLost, ArchiveError):
            break
        for event in events:
            if isinstance(event, Updated) and "expires_at" in event.changes:
                return lifetime
            if isinstance(event, Added | Repeated | StatusChanged) and event.ttl is not None:
                return Lifetime(ttl=event.ttl)
            if isinstance(event, Added | Repeated) and event.expires_at is not None:
                return lifetime
    return lifetime


def type_or_none(core: Core, name: str) -> Step[ObservationType | None]:
    """Return a type of the registry; if it is unknown, that of a newer registry, or None if that has dropped it."""
    try:
        return core.registry.types.get(name) or (yield from type_of(core, name))
    except UnknownType:
        return None  # the type was removed: the default lifecycle applies


def check_statuses(core: Core, field: str, statuses: Iterable[object]) -> Step[None]:
    """Raise InvalidField for a status that no lifecycle of the registry has, after checking for a newer registry."""
    names = set(statuses)
    if not names <= statuses_of(core):
        yield from newer_registry(core)
    for status in names - statuses_of(core):
        raise no_status(core, field, status)


def no_status(core: Core, field: str, status: object) -> InvalidField:
    """Return the error for a status that no type has."""
    known = ", ".join(sorted(statuses_of(core)))
    return InvalidField(field, f"{shown(status)} is not a status of any type; use one of: {known}")


def statuses_of(core: Core) -> set[str]:
    """Return the statuses of all lifecycles of the registry."""
    return {status for lifecycle in core.registry.all_lifecycles for status in lifecycle.statuses}


def lifecycle_of(kind: ObservationType | None, observation: Observation | None = None) -> Lifecycle:
    """Return the lifecycle of a type, or of one observation of it; the default one if the type was removed."""
    lifecycle = kind.lifecycle if kind is not None else DEFAULT
    return lifecycle if observation is None else lifecycle.of_observation(observation.status, observation.status_class)


def finish(
    core: Core, page: str, before: Observation | None, writes: list[Write], appended: Appended
) -> Step[Observation]:
    """Return the observation as the writes left it, folded from `before` and the events since then."""
    if appended.recalled is not None:
        return (yield from recall_all(core, page, appended.recalled[-1:]))[0]
    last = appended.written[-1]
    if before is not None and before.version + len(writes) == last.version:
        after: Observation | None = before
        for write, row in zip(writes, appended.written, strict=True):
            after = scratch_page.evolve(after, row.placed(write.event))
        return cast(Observation, after)  # only `cleared` leaves None, and its result is not used
    if before is not None and before.version < last.version <= before.version + _MANY:  # others wrote in between
        count = last.version - before.version
        events, _ = yield from walk_back(core.log, page, last.subject, last.position.stream_id, count)
        if len(events) == count and events[-1].prev == before.position.stream_id:
            after = before
            for event in reversed(events):
                after = scratch_page.evolve(after, event)
            return cast(Observation, after)
    found = yield from get(core.log, page, [last.subject], core.fresh)
    return (yield from left_by(core, page, last, found.get(last.subject)))


def left_by(core: Core, page: str, row: Written, current: Observation | None) -> Step[Observation]:
    """Return the observation as a write left it, although others may have changed it since, or cleared it.

    Return the current one if the history to fold is too long, or cannot be read.
    """
    if current is not None and (current.version == row.version or row.version > _MANY):
        return current
    try:
        return (yield from recall_all(core, page, [row.position]))[0]
    except (PositionLost, ArchiveError):
        if current is None:
            raise
        return current


def recall_all(core: Core, page: str, positions: list[Position]) -> Step[list[Observation]]:
    """Return the observations as these events, appended earlier, left them."""
    out = []
    for event in (yield from known_events(core.log, positions)):
        observation = yield from _recall(core, page, event)
        if observation is None:
            raise NotFound(f"{event.subject} is no longer on page {page!r}; its history is still there")
        out.append(scratch_page.settled(observation, event.ms))
    return out


def _recall(core: Core, page: str, event: Event) -> Step[Observation | None]:
    """Return the observation as an event left it.

    If the event is the last one, that is the current document. Otherwise fold its events up to this one, starting from
    the last recalled state if that is among them: so successive retries only fold new events. The state is cached as
    bytes, since a caller may modify the observation.
    """
    if not event.prev:
        return scratch_page.evolve(None, event)
    key = page, event.subject
    cached_id, cached = core.recalled.get(key, ("", b""))
    if not cached_id and (last := (yield from _if_last(core, page, event))) is not None:
        return last
    events: list[AnyEvent] = []
    observation: Observation | None = None
    at, limit = event.position.stream_id, _FEW if cached_id else _MANY
    while at:
        chunk, at = yield from walk_back(core.log, page, event.subject, at, limit)
        limit = _MANY
        for earlier in chunk:
            if earlier.id == cached_id:
                observation, at = decode_observation(cached), ""
                break
            events.append(earlier)
    for earlier in reversed(events):
        observation = scratch_page.evolve(observation, earlier)
    if observation is not None:
        if len(core.recalled) >= _MAX_CACHED:
            core.recalled.clear()
        core.recalled[key] = event.id, encode_document(observation)
    return observation


def _if_last(core: Core, page: str, event: Event) -> Step[Observation | None]:
    """Return the observation, not settled, if this is the last event about it and it is still on the page."""
    head = yield from read_head(core.log, page, event.subject)
    if head is not None and head.position != event.position.stream_id:
        return None
    stored = yield from query_page(core.log, page, core.fresh, "get", event.subject)
    documents: list[Observation | None] = [*decode_observations(stored.rows), *stored.overlay.values()]
    for document in documents:
        if document is not None and (document.id, document.position) == (event.subject, event.position):
            return document
    return None


def not_found(page: str, id: str) -> NotFound:
    """Return the error for an observation that a page does not have."""
    return NotFound(f"there is no {id} on page {page!r}; list the page to find ids")
