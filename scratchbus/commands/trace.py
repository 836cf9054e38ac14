"""Tracing an action back to what led to it, and an observation forward to what it led to."""

from __future__ import annotations

from collections import defaultdict
from typing import cast

from scratchbus.commands.read import list_history
from scratchbus.domain.checks import check_action
from scratchbus.domain.events import AnyEvent, Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.trace import Consequences, Motive, Trace
from scratchbus.domain.values import check_id
from scratchbus.engine.steps import Step
from scratchbus.errors import NotFound
from scratchbus.readmodel.history import read_events
from scratchbus.readmodel.relations import Relations, find_pages, gather, open_relations, resting_on
from scratchbus.readmodel.scope import Core

_AT_ONCE = 500


def trace(core: Core, page: str, action: str) -> Step[Trace]:
    """Return the observations of a page that led to an action, with their evidence on whatever page, and so on.

    Raises NotFound for an action that nothing on the page is linked to.
    """
    action, shard = check_action(action), core.log.shard(page)
    relations = yield from open_relations(core.log, [shard])
    name = f"{page}#{action}"
    ends = (yield from relations.leading_from("links", [name]))[name]
    spots = [Position.parse(end.partition("@")[2])._replace(shard=shard) for _, end in ends]
    motives: dict[str, Motive] = {}
    for event in (yield from _events_at(core, spots)):
        motives.setdefault(event.subject, Motive(id=event.subject, by=event.by, at=event.at))
    if not motives:
        raise NotFound(f"nothing on page {page!r} is linked to {action!r}; see the `links` of what is there")
    observations = yield from with_evidence(core, page, list(motives))
    return Trace(
        action=action,
        page=page,
        motives=list(motives.values()),
        observations=observations,
        beneath={id: each.evidence for id, each in observations.items()},
    )


def evidence(core: Core, page: str, id: str) -> Step[dict[str, Observation]]:
    """Return what an observation of a page rests on, directly or not. Raises InvalidId or NotFound."""
    found = yield from with_evidence(core, page, [check_id(id)])
    if id not in found or found[id].page != page:
        raise NotFound(f"{id} is not on page {page!r}; see `history`")
    return {other: each for other, each in found.items() if other != id}


def with_evidence(core: Core, page: str, ids: list[str]) -> Step[dict[str, Observation]]:
    """Return these observations and what they rest on, directly or not: of this page, else of another."""
    found: dict[str, Observation] = {}
    asked: set[str] = set()
    while ids:
        asked.update(ids)
        here = yield from gather(core.log, dict.fromkeys(ids, page), core.fresh)
        rest = [id for id in ids if id not in here]
        pages = (yield from find_pages(core.log, rest)) if rest else {}
        found |= here | (yield from gather(core.log, pages, core.fresh))
        ids = list(dict.fromkeys(below for id in ids if id in found for below in found[id].evidence))
        ids = [id for id in ids if id not in asked]
    return found


def consequences(core: Core, page: str, id: str) -> Step[Consequences]:
    """Return what rests on an observation, on whatever page, the actions these led to, and the events it caused.

    Raises NotFound for what never was on the page.
    """
    id = check_id(id)
    history = yield from list_history(core, page, id)
    relations = yield from open_relations(core.log)
    resting = yield from resting_on(relations, id)
    observations = yield from gather(core.log, {id: page} | resting.pages, core.fresh)
    return Consequences(
        id=id,
        page=page,
        observations=observations,
        beneath=resting.beneath,
        actions=list(dict.fromkeys(action for each in observations.values() for action in each.links)),
        events=cast(list[AnyEvent], (yield from _caused_by(core, relations, history))),
    )


def _caused_by(core: Core, relations: Relations, history: list[Event]) -> Step[list[Event]]:
    """Return the events that say that one of these was their cause, in time's order."""
    effects = yield from relations.leading_from("causes", [str(event.position) for event in history])
    spots = [Position.parse(end)._replace(shard=shard) for ends in effects.values() for shard, end in ends]
    return (yield from _events_at(core, spots))


def _events_at(core: Core, spots: list[Position]) -> Step[list[Event]]:
    """Return the events at these positions, of any shards, in time's order; what is not there is left out."""
    by_shard: dict[int, list[Position]] = defaultdict(list)
    for spot in spots:
        by_shard[spot.shard].append(spot)
    events: list[Event] = []
    for some in by_shard.values():
        for at in range(0, len(some), _AT_ONCE):
            events += yield from read_events(core.log, some[at : at + _AT_ONCE])
    return sorted(events, key=lambda event: (event.ms, event.shard, event.seq))
