"""Record which observations were shown to whom, and find out who has seen an observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from scratchbus.commands.bus_state import BusState
from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory_edit import earlier_attempt
from scratchbus.domain.checks import check_own_event_id
from scratchbus.domain.exposure import Exposure
from scratchbus.domain.observation import Observation
from scratchbus.domain.page_events import ContextRendered
from scratchbus.domain.position import Position
from scratchbus.domain.values import check_id
from scratchbus.engine.retry_limits import JITTER
from scratchbus.engine.steps import Step, batches
from scratchbus.errors import EngineForbidden, EngineFull, EngineReadOnly, LogBlocked, NotReplicated
from scratchbus.eventlog.append import append
from scratchbus.eventlog.writes import Op, Write
from scratchbus.projections.contexts import subject_of
from scratchbus.readmodel.exposures import exposure_of
from scratchbus.readmodel.relations import open_relations
from scratchbus.readmodel.scope import Core

Found = TypeVar("Found", bound=list[Observation] | Observation | None)

_MAX_BATCH: Final = 1_000
"""The most observations of one event."""


def record(
    core: Core,
    page: str,
    session: str | None,
    agent: str | None,
    observations: Mapping[str, int],
    tokens: int,
    event_id: str | None,
    new_id: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Step[Position]:
    """Record that these observations of a page, versions by id, were in a context; return the position.

    `files` are the files in it, by path, each with its SHA-256. Without a caller's own `event_id` the event gets
    `new_id`, or a fresh id.
    """
    check_own_event_id(event_id)
    occasion = Occasion.of(core, page, event_id, "context", session, agent)
    if event_id is None and new_id is not None:
        occasion = occasion._replace(event_id=new_id)
    event = occasion.event(
        ContextRendered,
        subject_of(session, core.by if agent is None else agent),
        session=session,
        agent=agent,
        observations=dict(observations),
        files=dict(files or {}),
        tokens=tokens,
    )
    appended = yield from append(core.log, page, [Write(event, Op.PUT, occasion.digest)])
    return appended.recalled[0] if appended.recalled else appended.written[0].position


def recorded(core: Core, page: str, session: str | None, agent: str | None, event_id: str) -> Step[Position | None]:
    """Return the position of the event that `record` appended with a caller's id; None if there is none."""
    occasion = Occasion.of(core, page, event_id, "context", session, agent)
    found = yield from earlier_attempt(core, occasion, subject_of(session, core.by if agent is None else agent))
    return found[0] if found else None


def logged(core: Core, page: str, reading: Step[Found]) -> Step[Found]:
    """Read an observation or several, and record who read them, as `log_read` does."""
    found = yield from reading
    match found:
        case Observation():
            yield from log_read(core, page, [found])
        case list():
            yield from log_read(core, page, found)
    return found


def log_read(core: Core, page: str, found: Sequence[Observation]) -> Step[None]:
    """Record who has read these observations, if this read is in the sample that `log_reads` sets.

    A process that cannot write reads without recording. A read is a context of 0 tokens, at most 1,000 observations.
    """
    if JITTER.random() < core.settings.log_reads:
        with suppress(EngineForbidden, EngineReadOnly, EngineFull, LogBlocked, NotReplicated):
            for batch in batches(found, _MAX_BATCH):
                shown = {each.id: each.version for each in batch}
                yield from record(core, page, None, core.by, shown, 0, None)


def exposure(state: BusState, page: str, id: str) -> Step[Exposure]:
    """Return who has seen an observation, and their actions since. Raises NotFound if it never was on the page."""
    id = check_id(id)
    relations = yield from open_relations(state.core.log)
    found = yield from exposure_of(state.core, relations, page, id, state.happened)
    if not found.seen:
        yield from state.history(page, id)
    return found
