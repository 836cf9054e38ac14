"""The events that streams send, and the frame of each, as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from scratchbus import BusPosition, Event, Position, cloud_event, document_of
from scratchbus.errors import InvalidPosition, LogError, LogRewound

CLOUD_EVENT: Final = "application/cloudevents+json"
CLOUD_EVENTS: Final = "application/cloudevents-batch+json"
"""The media types of a CloudEvent, and of a list of them, in JSON."""

Vector = tuple[Position, ...]
"""A position in every shard."""


class EventFilter(NamedTuple):
    """The events that a stream wants, None for all, and how they are shown."""

    pages: frozenset[str] | None = None
    types: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    subjects: frozenset[str] | None = None
    as_cloud_events: bool = False

    def wants(self, event: Event) -> bool:
        """Return whether an event is wanted."""
        return (
            (self.pages is None or event.page in self.pages)
            and (self.types is None or event.type in self.types)
            and (self.kinds is None or event.kind in self.kinds)
            and (self.subjects is None or event.subject in self.subjects)
        )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `bus.events`."""
        return {name: getattr(self, name) for name in ("pages", "types", "kinds", "subjects")}


def vector_of(after: str | None, shards: int) -> Vector:
    """Return a position in every shard for the text of one, or of the position of an event. Raises InvalidPosition."""
    if after is None:
        return tuple(Position(0, 0, shard) for shard in range(shards))
    if "," not in after and shards > 1:
        at = Position.parse(after)
        if at.shard >= shards:
            raise InvalidPosition(f"{after} is on shard {at.shard}; the bus has {shards}")
        return tuple(at if shard == at.shard else Position(at.ms, 0, shard) for shard in range(shards))
    vector = BusPosition.parse(after).shards
    if len(vector) != shards:
        raise InvalidPosition(f"{after[:100]} is a position of a bus with {len(vector)} shards, not {shards}")
    return vector


def text_of(vector: Sequence[Position]) -> str:
    """Return a position in every shard as text."""
    return str(BusPosition(tuple(vector)))


def moved(vector: Vector, event: Event) -> Vector:
    """Return a position in every shard, moved behind an event."""
    at = event.position
    return (*vector[: at.shard], at, *vector[at.shard + 1 :])


def frame(event: Event, position_after: str, bus: str, as_cloud_events: bool) -> bytes:
    """Return the frame of an event; `position_after` is the position after it."""
    document = cloud_event(event, bus) if as_cloud_events else document_of(event)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (position_after.encode(), event.kind.encode(), to_json(document))


def problem_frame(problem: LogError, position_after: str) -> bytes:
    """Return the frame that tells a client that events are missing: the stream continues after `position_after`."""
    name = "rewound" if isinstance(problem, LogRewound) else "position-lost"
    document = {"detail": str(problem), "position": position_after}
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (position_after.encode(), name.encode(), to_json(document))
