"""The options of a consumer, and their checks."""

from __future__ import annotations

from typing import NamedTuple

from scratchbus.domain.position import BusPosition
from scratchbus.domain.time_checks import When
from scratchbus.domain.values import Duration, check_page, check_whole
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidName, LogRewound, RegistryError, ScratchbusError, UnknownType, shown
from scratchbus.eventlog.cursor import ADVICE, cursors
from scratchbus.readmodel.scope import Core, type_of
from scratchbus.subscriptions.event_filters import Filters
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()

MAX_DELAY = 60.0
"""The longest automatic delay of a retry, in seconds."""


class Terms(NamedTuple):
    """The options of a consumer: the start of a new name, the attempts per event, and the handler's time limit.

    `retry_delay` applies after the first failure, and doubles with each further one.
    """

    after: When | None = None
    reset: bool = False
    max_attempts: int = 5
    retry_delay: Duration = "1s"
    handler_timeout: Duration = "5m"


def start_position(core: Core, name: str, filters: Filters, terms: Terms) -> Step[str]:
    """Return the text of the position after which a new subscription starts. Raises InvalidPosition or LogRewound.

    Warns of types that the registry does not have: they may be misspelled, or be published later.
    """
    for each in sorted(filters.narrow.types or ()):
        try:
            yield from type_of(core, each.decode())
        except UnknownType as problem:
            logger.warning("subscribed to an unknown type", subscription=name, reason=str(problem))
        except RegistryError:
            break  # the types need newer code, but the events may not
    return str(BusPosition(tuple(cursor.position for cursor in (yield from cursors(core.log, terms.after)))))


def check_name(name: str) -> str:
    """Return the name of a subscription, checked. Raises InvalidName."""
    try:
        return check_page(name)
    except InvalidName:
        raise InvalidName(f"subscription: {shown(name)} is not a name; use 1–128 letters, digits and _.@/:-") from None


def check_attempts(attempts: object) -> int:
    """Return a number of attempts, checked. Raises InvalidField."""
    return check_whole("max_attempts", attempts)


def name_reset(problem: ScratchbusError, name: str) -> None:
    """Add how a subscription continues after a LogRewound or lost events: its cursor stays, and ignores `after`."""
    if isinstance(problem, LogRewound):
        problem.advice = f"; subscription {name!r} stays where it is until you pass reset=True"
    elif problem.advice == ADVICE:
        problem.advice = (
            f"; read the page, and let subscription {name!r} continue at the end of the log: pass reset=True and"
            " after=bus.position()"
        )


def retry_seconds(delay: float, attempt: int) -> float:
    """Return how long to wait after a failed attempt, counted from 1: the delay doubles with each, up to a minute."""
    return float(min(MAX_DELAY, delay * 2 ** min(attempt - 1, 16)))
