"""Where a tracer hooks in. Without one, which is the default, each place costs a look at `active`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class TraceSpan(Protocol):
    """Something that takes time and has begun."""

    def end(self, problem: str | None = None, **attributes: Any) -> None:
        """Say that it is over, and the reason if it failed."""
        ...


class Tracing(Protocol):
    """A tracer. A `traceparent` is the W3C trace context of an event; events are those of `scratchbus.events`."""

    def because(self, why: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return why an event is made, with the trace context of its publication."""
        ...

    def publish(self, page: str, writes: Sequence[Any], steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Return steps that append writes, each with its `event`, and are traced."""
        ...

    def project(self, projection: str, traceparents: Sequence[str], events: int) -> TraceSpan:
        """Begin folding so many events, some of which have a trace context."""
        ...

    def deliver(self, subscription: str, event: Any, attempt: int) -> TraceSpan:
        """Begin the delivery of an event, which ends when it is acked or fails."""
        ...

    def handle(self, subscription: str, event: Any, delivery: TraceSpan) -> AbstractContextManager[Any]:
        """Return a context in which a delivered event is handled."""
        ...

    def act(self, worker: str, observation: Any, traceparent: str | None) -> AbstractContextManager[Any]:
        """Return a context in which a worker acts on an observation; the trace context is that of its addition."""
        ...


active: Tracing | None = None
"""The tracer."""


def set_tracing(tracing: Tracing | None) -> None:
    """Set the tracer of this process, for all buses; None for none."""
    global active
    active = tracing
