"""Conversations about the events that a subscription hands out to pulling clients. All are safe to repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.errors import LeaseLost, NotDelivered
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.subscription_script import run_script, subscription_script

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
        position, _, rest = text.partition("|")
        event_id, comes_again, state, attempt, due = rest.rsplit("|", 4)  # an event id may have any printable character
        return cls(position, event_id, comes_again == "1", state, int(attempt), int(due))

    def __str__(self) -> str:
        """The stored form."""
        position, event_id, comes_again, state, attempt, due = self
        return f"{position}|{event_id}|{int(comes_again)}|{state}|{attempt}|{due}"


def read_out(text: str) -> list[OutEntry]:
    """Return the events handed out, from their stored form."""
    return [OutEntry.parse(each) for each in text.split()]


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
