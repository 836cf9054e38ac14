"""The cause and the trace that events are made with: those of the block that makes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from scratchbus.domain.event import Event
from scratchbus.domain.position import BusPosition, Position
from scratchbus.errors import InvalidField, shown
from scratchbus.telemetry import tracing

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_RECEIVED = re.compile(r"([0-9a-f]{2})-(([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2})(-.*)?")
_NOTHING: dict[str, Any] = {}

_reasons: ContextVar[dict[str, Any]] = ContextVar("scratchbus_reasons", default=_NOTHING)  # never changed


untraced_reasons: Callable[[], Mapping[str, Any]] = _reasons.get
"""Returns what `reasons` does while no tracer is set, without the call."""


def reasons() -> Mapping[str, Any]:
    """Return the `cause` and `traceparent` for events that are made now."""
    reasons_here = _reasons.get()
    return reasons_here if tracing.active is None else tracing.active.because(reasons_here)


@contextmanager
def because(cause: Event | Position | str | None = None, *, traceparent: str | None = None) -> Iterator[None]:
    """Record a cause, and a W3C trace context, in every event that is made inside.

        with because(event):
            page.add("action_suggestion", …)

    Applies to this thread or task. Nested blocks add to the outer ones. Raises InvalidPosition or InvalidField.
    """
    reasons_inside = dict(_reasons.get())
    if cause is not None:
        at = cause.position if isinstance(cause, Event) else cause
        reasons_inside["cause"] = str(Position.parse(str(at) if isinstance(at, Position | BusPosition) else at))
    if traceparent is not None:
        if not _is_trace_context(traceparent):
            raise InvalidField("traceparent", f"{shown(traceparent)} is not a W3C trace context")
        reasons_inside["traceparent"] = traceparent
    token = _reasons.set(reasons_inside)
    try:
        yield
    finally:
        _reasons.reset(token)


def within_trace(traceparent: object) -> AbstractContextManager[None]:
    """Add events that are made inside to the trace of a request, given by its W3C `traceparent`.

    As the standard requires, an invalid value is ignored without an error. See `because`.
    """
    match = _RECEIVED.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if match is None:
        return nullcontext()
    version, context, trace, span, suffix = match.groups()
    is_invalid = version == "ff" or (version == "00" and suffix) or not trace.strip("0") or not span.strip("0")
    return nullcontext() if is_invalid else because(traceparent=f"00-{context}")


def _is_trace_context(value: object) -> bool:
    return isinstance(value, str) and _TRACEPARENT.fullmatch(value) is not None
