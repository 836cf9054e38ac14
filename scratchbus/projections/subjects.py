"""The projection of each subject: of observations here, of memories in `table`, which is imported when one is met."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial
from typing import Any

from scratchbus.domain.event import Event
from scratchbus.domain.observation import Observation
from scratchbus.domain.quoting import encodable
from scratchbus.domain.values import check_id
from scratchbus.projections import scratch_page
from scratchbus.projections.projection import Indexes, Projection
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    from scratchbus.projections import table

SCRATCH_PAGE = Projection(
    Observation,
    scratch_page.evolve,
    store="docs",
    indexes=Indexes(scratch_page.index_entries, scratch_page.INDEXED, scratch_page.next_moment),
)

IN_PLACE = replace(SCRATCH_PAGE, evolve=partial(scratch_page.evolve, in_place=True))
"""The same for a fold that is the only user of the observations: it changes them in place, at half the cost."""


def projection_of(subject: str) -> Projection[Any]:
    """Return the projection of a subject."""
    if subject[:1].isdigit():  # as ids of observations begin, which are ULIDs
        return SCRATCH_PAGE
    found: Projection[Any] = table.PROJECTIONS.get(subject.partition("_")[0], SCRATCH_PAGE)
    return found


def is_remembered(subject: str) -> bool:
    """Return whether a subject is a memory rather than an observation."""
    return projection_of(subject) is not SCRATCH_PAGE


def check_subject(id: object) -> str:
    """Return the id of an observation, or the subject of a memory. Raises InvalidId."""
    return id if isinstance(id, str) and is_remembered(id) and encodable(id) == id else check_id(id)


def is_over(event: Event) -> bool:
    """Return whether an event ends a session, which archives all memories of its page except the session itself."""
    return event.kind == "session_ended" and is_remembered(event.subject)


def fold_event(documents: MutableMapping[str, Any], event: Event) -> str:
    """Fold an event into the documents of its page, by subject; return the reason if it could not be folded."""
    subject = event.subject
    documents[subject], problem = projection_of(subject).fold(documents.get(subject), event)
    if is_over(event):
        for kept in [each for each in documents if each != subject and is_remembered(each)]:
            documents[kept] = None
    return problem
