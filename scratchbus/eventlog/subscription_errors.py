"""The errors about the stored state of a subscription: it is missing, was dropped, or is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scratchbus.domain.values import moment
from scratchbus.errors import LogError, NotFound, PositionLost


def removed(name: str) -> NotFound:
    """Return the error for an unknown subscription."""
    return NotFound(f"there is no subscription {name!r}; see `scratchbus status`, or subscribe again")


def dropped(name: str, ms: int, cursor: bytes, who: bytes) -> PositionLost:
    """Return the error for a subscription that was dropped."""
    return PositionLost(
        f"subscription {name!r} was dropped at {moment(ms):%Y-%m-%d %H:%M} UTC, since it had no consumer for longer"
        f" than subscription_ttl; it was at {cursor.decode()}, its last consumer was {who.decode() or 'unknown'}:"
        " subscribe with reset=True to start again"
    )


@contextmanager
def parsing(name: str) -> Iterator[None]:
    """Turn what the parsing of a subscription's state raises into a LogError that names the subscription."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as problem:
        raise LogError(
            f"the state of subscription {name!r} is damaged ({problem}); unsubscribe {name!r} and subscribe again"
        ) from None
