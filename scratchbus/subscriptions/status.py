"""How subscriptions are: how far behind, who consumes them, what they set aside."""

from __future__ import annotations

import json
from datetime import datetime

from pydantic import BaseModel

from scratchbus.core import Core
from scratchbus.domain.position import START, BusPosition, Position, moment
from scratchbus.log.steps import Step, ask_all
from scratchbus.log.subscription import names, read_hash


class SubscriptionStatus(BaseModel):
    """One subscription.

    `lag` counts all events of its logs behind the cursor, wanted or not; `lag_seconds` is how old the first of them is.
    `holder` is the active consumer, None when there is none; its lease ends at `until`. `trying` is the position of an
    event that failed `attempts` times, or whose consumers went away.
    """

    name: str
    filters: str
    cursor: str
    lag: int
    lag_seconds: float
    holder: str | None
    until: datetime | None
    trying: str | None
    attempts: int
    dead_letters: int


def read_subscriptions(core: Core) -> Step[list[SubscriptionStatus]]:
    """Return the status of every subscription, by name."""
    keys = core.log.keys(0)
    out = []
    for name in (yield from names(keys)):
        state = yield from read_hash(keys, keys.subscription(name))
        letters, time = yield from ask_all(0, [("HLEN", keys.dead(name)), ("TIME",)])
        if "cursor" not in state:
            continue  # it was removed meanwhile
        now = int(time[0]) * 1000 + int(time[1]) // 1000
        lag, oldest = yield from _lag(core, state)
        until = int(state.get("until", 0))
        is_held = until > now
        out.append(
            SubscriptionStatus(
                name=name,
                filters=state.get("filters", "{}"),
                cursor=state["cursor"],
                lag=lag,
                lag_seconds=max(0, now - oldest) / 1000 if oldest else 0.0,
                holder=state.get("holder") if is_held else None,
                until=moment(until) if is_held else None,
                trying=state.get("trying"),
                attempts=int(state.get("attempts", 0)),
                dead_letters=letters,
            )
        )
    return out


def _lag(core: Core, state: dict[str, str]) -> Step[tuple[int, int | None]]:
    """Return how many events are behind the cursor, and the moment (ms) of the oldest."""
    pages = json.loads(state.get("filters", "{}")).get("pages")
    shards = None if pages is None else {core.log.shard(page) for page in pages}
    lag, oldest = 0, list[int]()
    for cursor in BusPosition.parse(state["cursor"]).shards:
        if shards is not None and cursor.shard not in shards:
            continue
        keys = core.log.keys(cursor.shard)
        tail, first = yield from ask_all(
            cursor.shard, [("GET", keys.tail), ("XRANGE", keys.log, f"({cursor.stream_id}", "+", "COUNT", 1)]
        )
        end = Position.parse(tail.partition(b"|")[0].decode()) if tail else START
        if first:
            at = Position.parse(first[0][0].decode())
            lag += end.seq - at.seq + 1
            oldest.append(at.ms)
    return lag, min(oldest, default=None)
