"""Trace an action back to its causes, and an observation forward to its consequences."""

from __future__ import annotations

from collections import defaultdict

from scratchbus.commands.moment import Moment
from scratchbus.domain.checks import check_action
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.trace import Consequences, Motive, Trace
from scratchbus.domain.values import check_id
from scratchbus.engine.steps import Step
from scratchbus.errors import NotFound
from scratchbus.readmodel.history import read_events
from scratchbus.readmodel.relations import Relations, find_pages, open_relations, resting_on

_AT_ONCE = 500


def trace(moment: Moment, page: str, action: str) -> Step[Trace]:
    """Return the observations of a page that led to an action, with their direct and indirect evidence on any page.

    Raises NotFound if no observation of the page was ever linked to the action.
    """
    core = moment.core
    action, shard = check_action(action), core.log.shard(page)
    relations = yield from open_relations(core.log, [shard])
    name = f"{page}#{action}"
    ends = (yield from relations.leading_from("links", [name]))[name]
    spots = [Position.parse(end.partition("@")[2])._replace(shard=shard) for _, end in ends]
    motives: dict[str, Motive] = {}
    for event in (yield from _events_at(moment, spots)):
        motives.setdefault(event.subject, Motive(id=event.subject, by=event.by, at=event.at))
    if not motives:
        raise NotFound(f"nothing on page {page!r} is linked to {action!r}; see the `links` of its observations")
    observations = yield from _with_evidence(moment, page, list(motives))
    return Trace(
        action=action,
        page=page,
        motives=list(motives.values()),
        observations=observations,
        beneath={id: each.evidence for id, each in observations.items()},
    )


def evidence(moment: Moment, page: str, id: str) -> Step[dict[str, Observation]]:
    """Return the direct and indirect evidence of an observation of a page. Raises InvalidId or NotFound."""
    found = yield from _with_evidence(moment, page, [check_id(id)])
    if id not in found or found[id].page != page:
        raise NotFound(f"{id} is not on page {page!r}; see `history`")
    return {other: each for other, each in found.items() if other != id}


def _with_evidence(moment: Moment, page: str, ids: list[str]) -> Step[dict[str, Observation]]:
    """Return these observations and their direct and indirect evidence: of this page, else of another."""
    log = moment.core.log
    found: dict[str, Observation] = {}
    asked: set[str] = set()
    while ids:
        asked.update(ids)
        here = yield from moment.gather(dict.fromkeys(ids, page))
        rest = [id for id in ids if id not in here]
        pages = (yield from find_pages(log, rest)) if rest else {}
        found |= here | (yield from moment.gather(pages))
        ids = list(dict.fromkeys(below for id in ids if id in found for below in found[id].evidence))
        ids = [id for id in ids if id not in asked]
    return found


def consequences(moment: Moment, page: str, id: str) -> Step[Consequences]:
    """Return the dependents of an observation on any page, the actions these led to, and the events it caused.

    Raises NotFound if the observation never was on the page.
    """
    id = check_id(id)
    history = yield from moment.history(page, id)
    relations = yield from open_relations(moment.core.log)
    resting = yield from resting_on(relations, id)
    observations = yield from moment.gather({id: page} | resting.pages)
    return Consequences(
        id=id,
        page=page,
        observations=observations,
        beneath=resting.beneath,
        actions=list(dict.fromkeys(action for each in observations.values() for action in each.links)),
        events=(yield from _caused_by(moment, relations, history)),
    )


def _caused_by(moment: Moment, relations: Relations, history: list[AnyEvent]) -> Step[list[AnyEvent]]:
    """Return the events caused by one of these, in order of time."""
    effects = yield from relations.leading_from("causes", [str(event.position) for event in history])
    spots = [Position.parse(end)._replace(shard=shard) for ends in effects.values() for shard, end in ends]
    return (yield from _events_at(moment, spots))


def _events_at(moment: Moment, spots: list[Position]) -> Step[list[AnyEvent]]:
    """Return the events at these positions, of any shards, in order of time, without missing ones."""
    by_shard: dict[int, list[Position]] = defaultdict(list)
    for spot in spots:
        by_shard[spot.shard].append(spot)
    events: list[AnyEvent] = []
    for some in by_shard.values():
        for at in range(0, len(some), _AT_ONCE):
            events += yield from read_events(moment.core.log, some[at : at + _AT_ONCE])
    events = yield from moment.happened(events)
    return sorted(events, key=lambda event: (event.ms, event.shard, event.seq))
