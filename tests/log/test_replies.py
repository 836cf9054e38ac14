"""A reply that our scripts never give raises an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.errors import EngineError, LogRewound
from scratchbus.eventlog import checkpoint, staging, subscription_state
from scratchbus.eventlog import trim as trimming
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.readmodel import rebuild_lease
from tests.cases import case

KEYS = ShardKeys("b", 0)
POSITION = Position(1, 1)
ODD: list[Any] = [None, 7, b"OK", [], [7], [-9], [b"1"], [None], [9, 3, 4, 5]]


def archiving() -> trimming.Archiving:
    return trimming.Archiving(KEYS, "token", "who", 1)


def lease() -> subscription_state.SubscriptionLease:
    return subscription_state.SubscriptionLease(KEYS, "name", "token", "who", 1)


def removal() -> Step[Any]:
    """Remove a subscription, whose state has been read."""
    conversation = subscription_state.remove(KEYS, "name")
    conversation.send(None)
    conversation.send((yield conversation.send([[b"cursor", b"1-1"]])))


CONVERSATIONS: dict[str, Callable[[], Step[Any]]] = {
    "trim: take": lambda: archiving().take(),
    "trim: floor": lambda: archiving().raise_floor("o", POSITION, "id"),
    "trim: trim": lambda: archiving().trim("1-1"),
    "commit": lambda: checkpoint.commit(
        checkpoint.prepare_commit(KEYS, "key", checkpoint.Checkpoint(), POSITION, b"id", [])
    ),
    "rebuild: take": lambda: rebuild_lease.take(KEYS, "who"),
    "rebuild: switch": lambda: rebuild_lease.RebuildLease(KEYS, "token", 2, 1).switch(),
    "subscription: keep": lambda: lease().keep([subscription_state.CursorEnd(POSITION, "id")], ""),
    "subscription: take": lambda: lease().take("{}", "1-1"),
    "subscription: remove": removal,
    "import: take": lambda: staging.Staging(KEYS).take(),
    "import: switch": lambda: staging.Staging(KEYS).switch("", "1-1|x"),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_an_unknown_reply_is_an_error(name: str) -> None:
    for reply in ODD:
        conversation = CONVERSATIONS[name]()
        conversation.send(None)
        with (
            case(reply),
            pytest.raises(EngineError, match=f"script '{name.partition(':')[0]}(_script)?' answered .* upgrade"),
        ):
            conversation.send([reply])


def test_an_unknown_reason_is_an_error() -> None:
    for conversation in (archiving().trim("1-1"), archiving().raise_floor("o", POSITION, "id")):
        conversation.send(None)
        with pytest.raises(EngineError, match="upgrade"):
            conversation.send([[-1, b"moon"]])


def test_a_lost_floor_raises_log_rewound() -> None:
    conversation = archiving().trim("1-1")
    conversation.send(None)
    with pytest.raises(LogRewound, match="Run the archiver again"):
        conversation.send([[-1, b"floor"]])
