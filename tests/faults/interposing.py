"""Do something before, after or instead of a request to the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scratchbus import Bus
from scratchbus.engine.steps import Call, Interrupted, Sent

Send = Callable[[], list[Any]]
Around = Callable[[Call, Send], list[Any]]
"""Receives a request and a function that sends it; returns the replies or raises an engine error."""


@contextmanager
def interposed(bus: Bus, around: Around) -> Iterator[None]:
    """Pass every request of a bus through a function; writes that are sent ahead pass when they are collected."""
    engine = bus._engine
    execute = engine.execute
    send_ahead = engine._send_ahead
    engine.execute = lambda call: around(call, lambda: execute(call))  # type: ignore[method-assign]
    engine._send_ahead = lambda call: Sent(call) if call.is_write else send_ahead(call)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del engine.execute, engine._send_ahead  # the class still has them


def losing_replies(times: int = 1) -> Around:
    """Lose the replies of the first writes."""
    left = [times]

    def around(call: Call, send: Send) -> list[Any]:
        replies = send()
        if call.is_write and left[0]:
            left[0] -= 1
            raise Interrupted("the test lost the reply")
        return replies

    return around


def answering_first(replies: dict[str, Any]) -> Around:
    """Answer the first of each of these commands with a reply instead of the engine, and remove the reply."""

    def around(call: Call, send: Send) -> list[Any]:
        reply = replies.pop(call.commands[0][0], None)
        return send() if reply is None else [reply]

    return around
