"""Conversations about the events that a subscription hands out to pulling clients. All are safe to repeat."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, LeaseLost, NotDelivered, SubscriptionHeld
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.subscription_errors import dropped
from scratchbus.eventlog.subscription_script import run_script, subscription_script
from scratchbus.eventlog.subscription_state import read_state

OUT, ACKED, WAITING = "o", "a", "w"
"""The states of an event handed out."""


class OutEntry(NamedTuple):
    """An event handed out to a pulling client, for as long as it, or an earlier one, is not settled.

    `attempt` counts from 1; the event is not handed out again before `due` (ms, the engine's time). `comes_again` says
    that it is a redelivered dead letter.
    """

    position: str
    event_id: str
    comes_again: bool = False
    state: str = OUT
    attempt: int = 1
    due: int = 0

    @classmethod
    def parse(cls, text: str) -> OutEntry:
        """Read the stored form."""
        position, event_id, comes_again, state, attempt, due = text.split("|")
        return cls(position, event_id, comes_again == "1", state, int(attempt), int(due))

    def __str__(self) -> str:
        """The stored form."""
        position, event_id, comes_again, state, attempt, due = self
        return f"{position}|{event_id}|{int(comes_again)}|{state}|{attempt}|{due}"


class Settling(NamedTuple):
    """The state of a subscription that is needed to take an event back: `token` is the token of the lease."""

    token: str
    entries: dict[str, OutEntry]
    max_attempts: int | None
    retry_ms: int | None


def read_out(text: str) -> list[OutEntry]:
    """Return the events handed out, from their stored form."""
    return [OutEntry.parse(each) for each in text.split()]


def read_settling(keys: ShardKeys, name: str) -> Step[Settling]:
    """Return a subscription's events handed out, and its rules for retries. Raises NotFound."""
    state = yield from read_state(keys, name)
    maximum, delay = state.get("max_attempts"), state.get("retry_delay")
    return Settling(
        state.get("token", ""),
        {entry.position: entry for entry in read_out(state.get("out", ""))},
        int(maximum) if maximum else None,
        int(delay) if delay else None,
    )


def settle(
    keys: ShardKeys,
    name: str,
    token: str,
    positions: Sequence[str],
    state: str,
    *,
    dead_letter: str = "",
    wait_ms: int = 0,
    attempts: int = 0,
) -> Step[int]:
    """Ack events that are handed out, or take them back: all of these, or none. Raises LeaseLost or NotDelivered.

    Returns how many were still out: none if the call is repeated. With a `dead_letter` an acked event becomes one. An
    event that is taken back waits for `wait_ms`, and has used up so many `attempts`.
    """
    reply = yield from run_script(
        keys,
        name,
        "settle",
        *positions,
        token=token,
        state=state,
        dead_letter=dead_letter,
        wait_ms=wait_ms,
        attempts=attempts,
    )
    reply = subscription_script.answer(reply, 1, 0, -1)
    if reply[0] == 0:
        raise LeaseLost(name)
    if reply[0] == -1:
        raise NotDelivered(name, Position.parse(reply[1].decode()))
    return int(reply[1])


class Definition(NamedTuple):
    """The stored definition of a subscription. Its webhook has a URL and a secret, both "" for none.

    Without a secret the stored one is kept; if there is none, the default secret is stored.
    """

    filters: str
    max_attempts: int
    retry_ms: int
    url: str = ""
    secret: str = ""
    default_secret: str = ""


def define(keys: ShardKeys, name: str, definition: Definition, start: str, reset: bool) -> Step[bool]:
    """Store the definition of a subscription, which begins at `start` if it is new; return whether it is new.

    Raises InvalidField for a webhook without any secret, SubscriptionHeld for other filters or a reset while it is
    consumed, and PositionLost for a dropped subscription.
    """
    reply = yield from run_script(
        keys, name, "define", token=token_hex(8), filters=definition.filters, start=start, reset=int(reset),
        attempts=definition.max_attempts, wait_ms=definition.retry_ms, url=definition.url, secret=definition.secret,
        default_secret=definition.default_secret,
    )  # fmt: skip
    reply = subscription_script.answer(reply, 1, 0, -1, -3, -4)
    if reply[0] == -4:
        raise InvalidField("secret", "a webhook needs one to sign its deliveries; pass `new_webhook_secret()`")
    if reply[0] == -3:
        raise dropped(name, *reply[1:])
    if reply[0] != 1:
        raise SubscriptionHeld(name, reply[1].decode(), "be reset" if reset else "get other filters")
    return bool(reply[1])
