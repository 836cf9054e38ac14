"""The script that changes durable subscriptions."""

from __future__ import annotations

from typing import Any

from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Step, ask
from scratchbus.eventlog.keys import ShardKeys


@lua_script("eventlog/clock", "eventlog/subscription_state")
def subscription_script(
    *positions: str,
    subscription: Key,
    names: Key,
    dead: Key,
    again: Key,
    never: Key,
    operation: str,
    token: str = "",
    name: str = "",
    lease_ms: int = 0,
    who: str = "",
    filters: str = "",
    start: str = "",
    reset: int = 0,
    cursor: str = "",
    events: str = "",
    origins: str = "",
    position: str = "",
    attempts: int = 0,
    wait_ms: int = 0,
    dead_letter: str = "",
    idle_ms: int = 0,
    out: str = "",
    state: str = "",
    made: str = "",
    url: str = "",
    secret: str = "",
    default_secret: str = "",
) -> None:
    """Change a subscription; the operation says which of the arguments it needs.

    `names` is the set of all subscriptions, `dead` and `again` are its dead letters and those to deliver again. With
    `reset` it begins at `start` again. `position` is the position of an event that failed `attempts` times and is
    retried after `wait_ms`. `out` has the events handed out to a pulling client, and `state` is the new state of those
    at `positions` (see `pulls`). A call whose `token` was answered before is not done again. `made` is the token of
    the call that created the subscription.
    """


def run_script(keys: ShardKeys, name: str, operation: str, *positions: str, **needed: Any) -> Step[list[Any]]:
    """Run an operation of the script on a subscription; return its answer."""
    command = subscription_script(
        *positions,
        subscription=keys.subscription(name),
        names=keys.subscriptions,
        dead=keys.dead(name),
        again=keys.again(name),
        never=keys.again(""),  # every script that writes needs one, see `ShardKeys.ids`
        operation=operation,
        name=name,
        **needed,
    )
    reply: list[Any] = yield from ask(keys.shard, *command)
    return reply
