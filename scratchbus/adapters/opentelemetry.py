"""Traces for OpenTelemetry, by its semantic conventions for messaging.

    from scratchbus.adapters.opentelemetry import ScratchbusInstrumentor

    ScratchbusInstrumentor().instrument()

Each write is a span "publish PAGE"; its context goes with the event as `traceparent`, so that work of other processes
on the event joins the trace: "receive SUBSCRIPTION" from its delivery until it is acked, "process SUBSCRIPTION" while
it is handled in a `with` or by `run`, "act TYPE" while a worker has the observation. "project scratch_page" folds many
events at once, and links to them. The program chooses the SDK and where its spans go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as problem:
    raise ImportError(f"ScratchbusInstrumentor needs: pip install 'scratchbus[otel]' ({problem})") from None

from scratchbus import Event, Observation, TraceSpan, set_tracing

T = TypeVar("T")

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_MAX_LINKS = 128  # the SDK's default limit per span
_MAX_PENDING = 1_000  # publications in progress; one refused before it is sent never ends


class ScratchbusInstrumentor:
    """Traces all buses of this process; `opentelemetry-instrument` finds and uses it by itself."""

    def instrument(self, tracer_provider: trace.TracerProvider | None = None, **_: Any) -> None:
        """Begin to trace, with this provider or the global one."""
        set_tracing(_Tracer(trace.get_tracer("scratchbus", tracer_provider=tracer_provider)))

    def uninstrument(self, **_: Any) -> None:
        """Trace no more."""
        set_tracing(None)


class _Ending:
    """A span that does not end where it began."""

    def __init__(self, span: Span) -> None:
        self.span = span

    def end(self, problem: str | None = None, **attributes: Any) -> None:
        """End it, with the reason if it failed."""
        self.span.set_attributes(attributes)
        if problem is not None:
            self.span.set_status(Status(StatusCode.ERROR, problem))
        self.span.end()


class _Tracer:
    """See `scratchbus.Tracing`."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._pending: OrderedDict[str, Span] = OrderedDict()

    def because(self, why: Mapping[str, Any]) -> Mapping[str, Any]:
        """Begin to publish; the span's context goes with the event."""
        span = self._tracer.start_span("publish", context=_nearest(why.get("traceparent")), kind=SpanKind.PRODUCER)
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
        if not (traceparent := carrier.get("traceparent")):
            return why  # there is no SDK
        self._pending[traceparent] = span
        if len(self._pending) > _MAX_PENDING:
            with suppress(KeyError):  # other threads have published all of them meanwhile
                self._pending.popitem(last=False)
        return {**why, "traceparent": traceparent}

    def publish(self, page: str, writes: Sequence[Any], steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Trace an append; one of several calls is a span for each."""
        calls: dict[str | None, list[Any]] = {}
        for write in writes:
            calls.setdefault(write.event.traceparent, []).append(write)
        spans = {traceparent: self._publication(traceparent) for traceparent in calls}
        try:
            result = yield from steps
        except Exception as problem:
            for span in spans.values():
                span.set_attribute("error.type", type(problem).__name__)
                span.set_status(Status(StatusCode.ERROR, str(problem)))
            raise
        finally:
            for traceparent, span in spans.items():
                call = calls[traceparent]
                if span.is_recording():
                    span.update_name(f"publish {_template(page)}")
                    span.set_attributes(_of_event(call[0].event, "publish", "send"))
                    if len(call) > 1:
                        span.set_attribute("messaging.batch.message_count", len(call))
                span.end()
        return result

    def _publication(self, traceparent: str | None) -> Span:
        """Return the span of a publication that has begun, or begin one in the context of its events."""
        return self._pending.pop(traceparent or "", None) or self._tracer.start_span(
            "publish", context=_context(traceparent), kind=SpanKind.PRODUCER
        )

    def project(self, projection: str, traceparents: Sequence[str], events: int) -> TraceSpan:
        """Trace one fold of events, with links to the publications of the last ones."""
        contexts = (
            trace.get_current_span(_PROPAGATOR.extract({"traceparent": each})).get_span_context()
            for each in dict.fromkeys(traceparents[-_MAX_LINKS:])
        )
        return _Ending(
            self._tracer.start_span(
                f"project {projection}",
                kind=SpanKind.CONSUMER,
                links=[Link(context) for context in contexts if context.is_valid],
                attributes={
                    **_operation("project", "process"), "messaging.batch.message_count": events,
                    "messaging.consumer.group.name": projection,
                },
            )
        )  # fmt: skip

    def deliver(self, subscription: str, event: Event, attempt: int) -> TraceSpan:
        """Trace a delivery, until it is acked or fails."""
        return _Ending(
            self._tracer.start_span(
                f"receive {subscription}",
                context=_context(event.traceparent),
                kind=SpanKind.CONSUMER,
                attributes={**_of_event(event, "receive", "receive"), **_of_subscription(subscription, attempt)},
            )
        )

    @contextmanager
    def handle(self, subscription: str, event: Event, delivery: Any) -> Iterator[None]:
        """Trace the handling of a delivery; events published meanwhile belong to it."""
        attributes = {**_of_event(event, "process", "process"), **_of_subscription(subscription)}
        context = trace.set_span_in_context(delivery.span)
        with self._tracer.start_as_current_span(
            f"process {subscription}", context=context, kind=SpanKind.CONSUMER, attributes=attributes
        ):
            yield

    @contextmanager
    def act(self, worker: str, observation: Observation, traceparent: str | None) -> Iterator[None]:
        """Trace the work on an observation; events published meanwhile belong to it."""
        attributes = {
            **_operation("act", "process"), "messaging.destination.name": observation.page,
            "messaging.message.conversation_id": observation.id, "messaging.consumer.group.name": worker,
            "scratchbus.observation.type": observation.type,
        }  # fmt: skip
        with self._tracer.start_as_current_span(
            f"act {observation.type}", context=_context(traceparent), kind=SpanKind.CONSUMER, attributes=attributes
        ):
            yield


def _context(traceparent: str | None) -> Context | None:
    """Return the context of an event; None, which is the current one, if it has none."""
    return None if traceparent is None else _PROPAGATOR.extract({"traceparent": traceparent})


def _nearest(traceparent: str | None) -> Context | None:
    """Return the context of a publication: the current span, if it belongs to the named trace."""
    named, current = _context(traceparent), trace.get_current_span().get_span_context()
    if named is None or not current.is_valid:
        return named
    return None if trace.get_current_span(named).get_span_context().trace_id == current.trace_id else named


def _operation(name: str, kind: str) -> dict[str, str]:
    return {"messaging.system": "scratchbus", "messaging.operation.name": name, "messaging.operation.type": kind}


def _of_event(event: Event, name: str, kind: str) -> dict[str, str]:
    found = {
        **_operation(name, kind), "messaging.destination.name": event.page, "messaging.message.id": event.id,
        "messaging.message.conversation_id": event.subject, "scratchbus.event.kind": event.kind,
    }  # fmt: skip
    if (template := _template(event.page)) != event.page:
        found["messaging.destination.template"] = template
    return found


def _of_subscription(name: str, attempt: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"messaging.destination.subscription.name": name, "messaging.consumer.group.name": name}
    return found if attempt is None else {**found, "scratchbus.attempt": attempt}


def _template(page: str) -> str:
    """Return a low-cardinality name for a page: session:{id} for all sessions."""
    kind, colon, _ = page.partition(":")
    return f"{kind}:{{id}}" if colon else page
