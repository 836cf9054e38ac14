"""The relations between events, observations and actions that events record."""

from __future__ import annotations

from collections.abc import Iterator

from scratchbus.domain.event import Event
from scratchbus.domain.fact_events import FactAsserted
from scratchbus.domain.page_events import Added, ContextRendered, Linked, Repeated

RELATIONS = ("evidence", "links", "causes", "seen", "actions")
"""The names of the relations; see `eventlog.keys.PageKeys`."""


def relations(event: Event) -> Iterator[tuple[str, str, str]]:
    """Yield the relations that an event records, as (relation, from, to) in the form of `eventlog.keys.PageKeys`.

    They remain valid, even when an observation has left its page.
    """
    if isinstance(event, Added | Repeated | FactAsserted):
        for id in event.evidence:
            yield "evidence", id, f"{event.subject}@{event.page}"
    elif isinstance(event, Linked):
        yield "links", f"{event.page}#{event.action}", f"{event.subject}@{event.position.stream_id}"
        yield "actions", event.by, event.position.stream_id
    elif isinstance(event, ContextRendered):
        for id in event.observations:
            yield "seen", id, f"{event.subject}@{event.page}"
    if event.cause is not None:
        yield "causes", event.cause, event.position.stream_id
