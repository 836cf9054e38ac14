"""One event on its way to the handler and back."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from scratchbus.domain.events import AnyEvent
from scratchbus.domain.position import Position
from scratchbus.domain.quoting import encodable
from scratchbus.errors import EngineError, LeaseLost, LogError
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.telemetry import tracing
from scratchbus.telemetry.lazy import lazy

if TYPE_CHECKING:
    from scratchbus.subscriptions import window as windows
else:
    windows = lazy("scratchbus.subscriptions.window")

WAITING, OUT, ACKED = range(3)

CONSUMER_ERRORS = (LeaseLost, EngineError, LogError)
"""Errors that end a consumer and are no fault of the event it was handling."""


WENT_AWAY = "its consumers went away while they had it"
"""The reason of a dead letter whose last attempt was neither acked nor failed."""


def reason_of(problem: BaseException | None) -> str:
    """Return the reason a dead letter gives for an exception, in one line."""
    text = str(problem)
    return reason_text(f"{type(problem).__name__}: {text}" if text.strip() else type(problem).__name__)


def reason_text(reason: object) -> str:
    """Return a reason as one line that can be stored; of a long one, the first 1,000 characters."""
    return encodable(" ".join(str(reason).split()))[:1000]


class DeliveryState:
    """One event on its way to the handler and back.

    `when` is the moment (monotonic seconds) before which it is not handed out,
    and afterwards the moment at which it was.
    """

    __slots__ = ("attempt", "handling", "is_noted", "item", "number", "span", "state", "when", "window")

    def __init__(self, window: windows.DeliveryWindow, item: LogEntry, number: int) -> None:
        self.window = window
        self.item = item
        self.number = number
        self.state = WAITING
        self.attempt = 1
        self.when = 0.0
        self.is_noted = number < 0
        self.span: tracing.TraceSpan | None = None
        self.handling: AbstractContextManager[Any] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.event!r}, attempt {self.attempt}>"

    def begin(self) -> None:
        """Trace the handling of the event, if there is a tracer."""
        if self.span is not None and tracing.active is not None:
            self.handling = tracing.active.handle(self.window.lease.name, self.event, self.span)
            self.handling.__enter__()

    def end(self, problem: BaseException | None) -> None:
        """End the trace of the handling."""
        handling, self.handling = self.handling, None
        if handling is not None:
            exception = (None, None, None) if problem is None else (type(problem), problem, problem.__traceback__)
            handling.__exit__(*exception)

    def settled(self, problem: str | None = None) -> None:
        """End the trace of the delivery, if there is one."""
        if self.span is not None:
            self.span.end(problem)

    @property
    def event(self) -> AnyEvent:
        """The event."""
        return self.item.event  # type: ignore[return-value]  # poison is never handed out

    @property
    def position(self) -> Position:
        """The position of the event."""
        return self.item.position
