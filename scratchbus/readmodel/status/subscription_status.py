"""The status of subscriptions: their lag, their consumers and their dead letters."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from scratchbus.domain.values import moment
from scratchbus.engine.steps import Step, ask_all
from scratchbus.eventlog.lag import Lag, in_ms, read_lags
from scratchbus.eventlog.subscription_errors import parsing
from scratchbus.eventlog.subscription_state import cursors_of, names, texts
from scratchbus.readmodel.scope import Core


class SubscriptionStatus(BaseModel):
    """One subscription.

    `lag` counts all events of its logs after the cursor, selected or not; `lag_seconds` is the age of the first of
    them. `holder` is the active consumer, None without one; it has held the lease since `since`, and would lose it at
    `until` if it vanished now. `trying` is the position of an event that failed `attempts` times, or whose consumers
    went away. It is `dropped` if nobody consumed it for `subscription_ttl`. `max_attempts`, `retry_delay` (seconds) and
    the `url` of its webhook are the declared ones, None without a declaration.
    """

    name: str
    filters: str
    cursor: str
    lag: int
    lag_seconds: float
    holder: str | None
    since: datetime | None
    until: datetime | None
    trying: str | None
    attempts: int
    dead_letters: int
    dropped: datetime | None = None
    max_attempts: int | None = None
    retry_delay: float | None = None
    url: str | None = None


def read_subscriptions(core: Core) -> Step[list[SubscriptionStatus]]:
    """Return the status of every subscription, by name."""
    keys = core.log.keys(0)
    all_names = yield from names(keys)
    states = [("HGETALL", keys.subscription(name)) for name in all_names]
    letters = [("HLEN", keys.dead(name)) for name in all_names]
    *replies, time = yield from ask_all(0, [*states, *letters, ("TIME",)])
    rows = [
        (name, texts(row), count)
        for name, row, count in zip(all_names, replies[: len(all_names)], replies[len(all_names) :], strict=True)
        if row  # else it was removed meanwhile
    ]
    cursors = {name: cursors_of(core.log, name, state) for name, state, _ in rows}
    lags = yield from read_lags(core.log, [cursor for positions in cursors.values() for cursor in positions])
    found = list[SubscriptionStatus]()
    for name, state, count in rows:
        with parsing(name):
            found.append(_status(name, state, count, [lags[at] for at in cursors[name]], in_ms(time)))
    return found


def _status(name: str, state: dict[str, str], dead_letters: int, lags: list[Lag], now: int) -> SubscriptionStatus:
    until = int(state.get("until", 0))
    is_held = until > now
    return SubscriptionStatus(
        name=name,
        filters=state.get("filters", "{}"),
        cursor=state["cursor"],
        lag=sum(lag.events for lag in lags),
        lag_seconds=max((lag.seconds for lag in lags), default=0.0),
        holder=state.get("holder") if is_held else None,
        since=moment(int(state["since"])) if is_held else None,
        until=moment(until) if is_held else None,
        trying=state.get("trying"),
        attempts=int(state.get("attempts", 0)),
        dead_letters=dead_letters,
        dropped=moment(int(state["dropped"])) if "dropped" in state else None,
        max_attempts=int(state["max_attempts"]) if "max_attempts" in state else None,
        retry_delay=int(state["retry_delay"]) / 1000 if "retry_delay" in state else None,
        url=state.get("url"),
    )
