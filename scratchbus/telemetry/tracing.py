"""The hooks for a tracer. Without one, the default, each hook costs one check of `active`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class TraceSpan(Protocol):
    """An operation in progress."""

    def end(self, problem: str | None = None, **attributes: Any) -> None:
        """End it, with the reason if it failed."""
        ...


class Tracing(Protocol):
    """A tracer. A `traceparent` is the W3C trace context of an event; events are those of `scratchbus.events`."""

    def because(self, why: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the cause of an event, with the trace context of its publication."""
        ...

    def publish(self, page: str, writes: Sequence[Any], steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Return traced steps that append writes, each with its `event`."""
        ...

    def project(self, projection: str, traceparents: Sequence[str], events: int) -> TraceSpan:
        """Begin folding this many events, some with a trace context."""
        ...

    def deliver(self, subscription: str, event: Any, attempt: int) -> TraceSpan:
        """Begin the delivery of an event; it ends when the event is acked or fails."""
        ...

    def handle(self, subscription: str, event: Any, delivery: TraceSpan) -> AbstractContextManager[Any]:
        """Return a context in which a delivered event is handled."""
        ...

    def act(self, worker: str, observation: Any, traceparent: str | None) -> AbstractContextManager[Any]:
        """Return a context in which a worker acts on an observation, with the trace context of its addition."""
        ...


active: Tracing | None = None
"""The tracer."""


def set_tracing(tracing: Tracing | None) -> None:
    """Set the tracer of this process, for all buses; None removes it."""
    global active
    active = tracing
