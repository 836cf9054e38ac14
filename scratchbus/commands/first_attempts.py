"""Retries with the caller's own event id: the digests of additions, and finding the first attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from scratchbus.commands.observations import recall_all
from scratchbus.domain.digest import digest_of
from scratchbus.domain.event import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import GUARDS
from scratchbus.domain.page_events import Added
from scratchbus.domain.position import Position
from scratchbus.domain.values import moment
from scratchbus.engine.steps import Step
from scratchbus.errors import Conflict, EventIdReused, InvalidInput
from scratchbus.eventlog.append import append, find_attempt
from scratchbus.eventlog.below_floor import entries_at
from scratchbus.eventlog.ids import bound_of, earliest_bound, new_id
from scratchbus.eventlog.retries import check_same
from scratchbus.eventlog.writes import Appended, Ids, Op, Write
from scratchbus.readmodel.history import known_events
from scratchbus.readmodel.scope import Core

_OLD_DEFAULTS: tuple[dict[str, Any], ...] = ({}, {"evidence": [], "blocked_by": []})
"""The arguments that older versions added to those of a caller: none, or those of the command line."""


def digest_of_addition(page: str, arguments: Mapping[str, Any], by: str | None, batch_size: int) -> str:
    """Return the digest of checked arguments; `by` is the identity of the bus, if it has one.

    It is the same whether a source is given to the bus, to the addition, or to both.
    """
    given = {name: value for name, value in arguments.items() if name not in GUARDS}
    source = given.pop("source", by)
    if by is not None and source != by:
        given["source"] = source
    return digest_of("add", page, given, by or source, batch_size)


def append_with_old_digests(
    core: Core,
    page: str,
    writes: list[Write],
    items: Sequence[Mapping[str, Any]],
    batch_size: int,
    error: EventIdReused,
) -> Step[Appended]:
    """Append additions under their digests as older versions made them. Raises the `error` of today's digests."""
    settings = core.settings
    for defaults in _OLD_DEFAULTS:
        for write, arguments in zip(writes, items, strict=True):
            given = defaults | {name: value for name, value in arguments.items() if name not in GUARDS}
            write.digest = digest_of("add", page, given, settings.source, batch_size)
        try:
            return (yield from append(core.log, page, writes, room=settings.max_observations, on_full=settings.on_full))
        except EventIdReused:
            continue
    raise error


def check_keys(writes: Sequence[Write], found: Sequence[Observation]) -> None:
    """Raise EventIdReused if a retry with a generated id has another dedupe key than the first attempt.

    Comparing the events does not show this: a `repeated` event does not have the key.
    """
    for write, observation in zip(writes, found, strict=True):
        if bound_of(write.event.id) is not None and cast(Added, write.event).dedupe_key != observation.dedupe_key:
            raise EventIdReused(writes[0].event.id)


def earlier_additions(
    core: Core,
    page: str,
    items: Sequence[Mapping[str, Any]],
    event_id: str | None,
    decide: Callable[[datetime, Ids, Mapping[str, Any]], Write],
) -> Step[list[Observation] | None]:
    """Return the result of an earlier attempt of an addition that is refused now; None if there was none.

    The time at which an observation expires may have passed since, or its type may be gone. `decide` returns the write
    of an addition as it was decided at a time. Raises EventIdReused.
    """
    by, batch_size = core.settings.source, len(items) if event_id is not None else 1
    ids = [_id_of(arguments, event_id, index) for index, arguments in enumerate(items)]
    bound = earliest_bound(filter(None, ids))
    writes: list[Write] = []
    for id, arguments in zip(ids, items, strict=True):
        if id is None:
            return None
        if bound is None:
            digest = digest_of_addition(page, arguments, by, batch_size)
            writes.append(_lookup(page, id, by or arguments.get("source", ""), digest))
            continue
        if arguments["type"] not in core.registry.types:
            return None
        try:
            writes.append(decide(_time_of(bound), Ids(new_id(), id, batch_size), arguments))
        except InvalidInput:
            return None  # it was refused then, too
    positions = yield from (_find if bound is None else _find_same)(core, page, writes)
    if positions is None:
        return None
    found = yield from recall_batch(core, page, positions)
    check_keys(writes, found)
    return found


def _id_of(arguments: Mapping[str, Any], event_id: str | None, index: int) -> str | None:
    """Return the event id of an addition in a batch with an event id, or none; None if the caller gave neither."""
    own: str | None = arguments.get("event_id")
    return own or (f"{event_id}/{index}" if index and event_id is not None else event_id)


def recall_batch(core: Core, page: str, positions: list[Position]) -> Step[list[Observation]]:
    """Return the observations of additions at these positions, as the whole batch left them."""
    found = yield from recall_all(core, page, positions)
    last = {each.id: each for each in found}
    return [last[each.id] for each in found]


def earlier_change(
    core: Core, page: str, event_id: str, digest: str, decide: Callable[[datetime], list[Write]]
) -> Step[Observation | None]:
    """Return the result of an earlier attempt of a change that is refused now; None if there was none.

    `decide` returns its writes as they were decided at a time. Raises EventIdReused.
    """
    bound = bound_of(event_id)
    if bound is not None:
        try:
            writes = decide(_time_of(bound))
        except InvalidInput:
            return None  # it was refused then, too
        positions = yield from _find_same(core, page, writes)
    elif digest:
        positions = yield from _find(core, page, [_lookup(page, event_id, core.by, digest)])
    else:
        return None  # it is no retry
    return None if positions is None else (yield from recall_change(core, page, positions[-1]))


def _time_of(bound: str) -> datetime:
    """Return the time of a stream id."""
    return moment(int(bound.partition("-")[0]))


def recall_change(core: Core, page: str, position: Position) -> Step[Observation]:
    """Return the observation as a change left it, of which the event at a position may not be the last."""
    (event,) = yield from known_events(core.log, [position])
    number, _, total = event.batch.partition("/")
    end = event.position._replace(seq=event.seq + int(total) - int(number))
    return (yield from recall_all(core, page, [end]))[0]


def _find_same(core: Core, page: str, writes: list[Write]) -> Step[list[Position] | None]:
    """Return the positions of events under generated ids, which have no digest; None if they were never appended.

    Raises EventIdReused if these writes cannot have made them.
    """
    sought = [Event(id=each.event.id, page=page, by=each.event.by) for each in writes]
    lookups = [Write(event, Op.PUT, each.digest, body=b"{}") for event, each in zip(sought, writes, strict=True)]
    positions = yield from find_attempt(core.log, page, lookups)
    if positions is not None:
        check_same(writes, (yield from entries_at(core.log, positions)))
    return positions


def _lookup(page: str, event_id: str, by: str, digest: str) -> Write:
    """Return a write that is never appended, and finds the event with its id."""
    event = Event(id=event_id, page=page, subject=new_id(), by=by)
    return Write(event, Op.PUT, digest, body=b"{}")


def _find(core: Core, page: str, writes: list[Write]) -> Step[list[Position] | None]:
    """Return the positions of events under ids of their caller, by their digests; None if they were never appended."""
    try:
        return (yield from find_attempt(core.log, page, writes))
    except Conflict:
        return None
