"""Recording what was shown to whom, and finding out who has seen an observation."""

from __future__ import annotations

from collections.abc import Mapping

from scratchbus.commands.execution import Occasion
from scratchbus.commands.read import list_history
from scratchbus.domain.checks import check_guards
from scratchbus.domain.events import ContextRendered
from scratchbus.domain.exposure import Exposure
from scratchbus.domain.position import Position
from scratchbus.domain.values import check_id
from scratchbus.engine.steps import Step
from scratchbus.eventlog.append import append
from scratchbus.eventlog.writes import Op, Write
from scratchbus.projections.contexts import subject_of
from scratchbus.readmodel.exposures import exposure_of
from scratchbus.readmodel.relations import open_relations
from scratchbus.readmodel.scope import Core


def record(
    core: Core,
    page: str,
    session: str | None,
    agent: str | None,
    observations: Mapping[str, int],
    tokens: int,
    event_id: str | None,
    new_id: str | None = None,
) -> Step[Position]:
    """Record that these observations of a page, by id in which version, were in a context; return the position.

    Without a caller's own `event_id` the event has `new_id`, or any.
    """
    check_guards(event_id)
    viewer = f"session:{session}" if session is not None else f"agent:{agent if agent is not None else core.by}"
    occasion = Occasion.of(core, page, event_id, "context", session, agent)
    if event_id is None and new_id is not None:
        occasion = occasion._replace(event_id=new_id)
    event = occasion.event(
        ContextRendered,
        subject_of(viewer),
        session=session,
        agent=agent,
        observations=dict(observations),
        tokens=tokens,
    )
    done = yield from append(core.log, page, [Write(event, Op.PUT, occasion.digest)])
    return done.recalled[0] if done.recalled else done.written[0].position


def exposure(core: Core, page: str, id: str) -> Step[Exposure]:
    """Return who has seen an observation, and what they did since. Raises NotFound for what never was on the page."""
    id = check_id(id)
    relations = yield from open_relations(core.log)
    found = yield from exposure_of(core, relations, page, id)
    if not found.seen:
        yield from list_history(core, page, id)
    return found
