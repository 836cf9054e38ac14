"""Who has seen an observation, from the relations and the events they point to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.exposure import ActionTaken, Exposure, Seen
from scratchbus.domain.page_events import ContextRendered, Linked
from scratchbus.domain.position import Position, in_time
from scratchbus.engine.steps import Step
from scratchbus.readmodel.history import history, read_events_of_shards
from scratchbus.readmodel.relations import Relations
from scratchbus.readmodel.scope import Core

EventSelector = Callable[[list[AnyEvent]], Step[list[AnyEvent]]]
"""Says which of some events had happened."""


def exposure_of(core: Core, relations: Relations, page: str, id: str, select: EventSelector) -> Step[Exposure]:
    """Return who has seen an observation of a page, and the actions that they linked afterwards."""
    subjects = (yield from relations.leading_from("seen", [id]))[id]
    renderings: list[ContextRendered] = []
    ending = f"@{page}"  # the page, like the name of a session in a subject, may have an "@"
    for subject in sorted({end.removesuffix(ending) for _, end in subjects if end.endswith(ending)}):
        events = yield from select((yield from history(core.log, page, subject)))
        renderings += [event for event in events if isinstance(event, ContextRendered) and id in event.observations]
    renderings.sort(key=lambda event: event.seq)
    actions = yield from _actions(core, relations, renderings, select)
    return Exposure(id=id, page=page, seen=list(_versions_seen(id, renderings)), actions=actions)


def _versions_seen(id: str, renderings: Iterable[ContextRendered]) -> Iterator[Seen]:
    """Yield each version seen by each reader, once."""
    found: dict[tuple[str | None, str | None, str, int], list[ContextRendered]] = defaultdict(list)
    for event in renderings:
        found[event.session, event.agent, event.by, event.observations[id]].append(event)
    for (session, agent, by, version), events in found.items():
        yield Seen(session=session, agent=agent, by=by, version=version, at=events[0].at, times=len(events))


def _actions(
    core: Core, relations: Relations, renderings: list[ContextRendered], select: EventSelector
) -> Step[list[ActionTaken]]:
    """Return the actions that each reader linked after first seeing it, by name."""
    since: dict[str, ContextRendered] = {}
    for event in reversed(renderings):
        since |= {name: event for name in (event.session, event.agent, event.by) if name is not None}
    ends = yield from relations.leading_from("actions", since)
    positions = [Position.parse(end)._replace(shard=shard) for group in ends.values() for shard, end in group]
    floor = min((event.ms for event in since.values()), default=0)
    relevant = sorted(position for position in positions if position.ms >= floor)
    links = yield from select((yield from read_events_of_shards(core.log, relevant)))
    return [
        ActionTaken(action=link.action, id=link.subject, page=link.page, by=link.by, at=link.at)
        for link in sorted(links, key=in_time)
        if isinstance(link, Linked) and _follows(link, since[link.by])
    ]


def _follows(link: Linked, rendering: ContextRendered) -> bool:
    """Return whether a link came after a context; between two shards their clocks decide."""
    return link.seq > rendering.seq if link.shard == rendering.shard else link.ms >= rendering.ms
