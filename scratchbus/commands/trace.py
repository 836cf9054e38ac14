"""Trace an action back to its causes, and an observation forward to its consequences."""

from __future__ import annotations

from scratchbus.commands.bus_state import BusState
from scratchbus.domain.checks import check_action
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position, in_time
from scratchbus.domain.trace import Consequences, Motive, Trace
from scratchbus.domain.values import check_id
from scratchbus.engine.steps import Step
from scratchbus.errors import NotFound
from scratchbus.readmodel.history import read_events_of_shards
from scratchbus.readmodel.relations import Relations, open_relations, resting_on


def trace(state: BusState, page: str, action: str) -> Step[Trace]:
    """Return the observations of a page that led to an action, with their direct and indirect evidence on any page.

    Raises NotFound if no observation of the page was ever linked to the action.
    """
    core = state.core
    action, shard = check_action(action), core.log.shard(page)
    relations = yield from open_relations(core.log, [shard])
    name = f"{page}#{action}"
    ends = (yield from relations.leading_from("links", [name]))[name]
    positions = [Position.parse(end.partition("@")[2])._replace(shard=shard) for _, end in ends]
    motives: dict[str, Motive] = {}
    for event in (yield from _events_at(state, positions)):
        motives.setdefault(event.subject, Motive(id=event.subject, by=event.by, at=event.at))
    if not motives:
        raise NotFound(
            f"nothing on page {page!r} is linked to {action!r}; check the page, and the `links` of its observations"
        )
    observations = yield from _with_evidence(state, page, list(motives))
    return Trace(
        action=action,
        page=page,
        motives=list(motives.values()),
        observations=observations,
        beneath={id: each.evidence for id, each in observations.items()},
    )


def evidence(state: BusState, page: str, id: str) -> Step[dict[str, Observation]]:
    """Return the direct and indirect evidence of an observation of a page. Raises InvalidId or NotFound."""
    found = yield from _with_evidence(state, page, [check_id(id)])
    if id not in found or found[id].page != page:
        raise NotFound(f"{id} is not on page {page!r}; see `history`")
    return {other: each for other, each in found.items() if other != id}


def _with_evidence(state: BusState, page: str, ids: list[str]) -> Step[dict[str, Observation]]:
    """Return these observations and their direct and indirect evidence: of this page, else of another."""
    found: dict[str, Observation] = {}
    visited: set[str] = set()
    while ids:
        visited.update(ids)
        on_page = yield from state.gather(dict.fromkeys(ids, page))
        elsewhere = [id for id in ids if id not in on_page]
        pages = (yield from state.find_pages(elsewhere)) if elsewhere else {}
        found |= on_page | (yield from state.gather(pages))
        ids = list(dict.fromkeys(evidence_id for id in ids if id in found for evidence_id in found[id].evidence))
        ids = [id for id in ids if id not in visited]
    return found


def consequences(state: BusState, page: str, id: str) -> Step[Consequences]:
    """Return the dependents of an observation on any page, the actions these led to, and the events it caused.

    Raises NotFound if the observation never was on the page.
    """
    id = check_id(id)
    history = yield from state.history(page, id)
    relations = yield from open_relations(state.core.log)
    resting = yield from resting_on(relations, id)
    observations = yield from state.gather({id: page} | resting.pages)
    return Consequences(
        id=id,
        page=page,
        observations=observations,
        beneath=resting.beneath,
        actions=list(dict.fromkeys(action for each in observations.values() for action in each.links)),
        events=(yield from _caused_by(state, relations, history)),
    )


def _caused_by(state: BusState, relations: Relations, history: list[AnyEvent]) -> Step[list[AnyEvent]]:
    """Return the events caused by one of these, in order of time."""
    effects = yield from relations.leading_from("causes", [str(event.position) for event in history])
    positions = [Position.parse(end)._replace(shard=shard) for ends in effects.values() for shard, end in ends]
    return (yield from _events_at(state, positions))


def _events_at(state: BusState, positions: list[Position]) -> Step[list[AnyEvent]]:
    """Return the events at these positions, of any shards, in order of time, without missing ones."""
    events = yield from state.happened((yield from read_events_of_shards(state.core.log, positions)))
    return sorted(events, key=in_time)
