"""Code that is broken on purpose, in processes of a round: the checker has to see what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha1
from itertools import count
from typing import Any

from scratchbus.domain.position import Position
from scratchbus.feed import Item
from scratchbus.log import append
from scratchbus.log.engine import Engine
from scratchbus.log.steps import Call, Interrupted, Script, Step
from scratchbus.subscriptions.hold import Hold


def skip() -> None:
    """Have a subscriber leave out one of ten events."""
    numbers, take_in = count(1), Hold.take_in

    def leave_out(hold: Hold, items: Sequence[Item], shard: int, end: Position) -> None:
        take_in(hold, [item for item in items if next(numbers) % 10], shard, end)

    Hold.take_in = leave_out  # type: ignore[assignment,method-assign]


def forget_fences() -> None:
    """Have the append script take any fence."""
    _edit(append._SCRIPT, "not (held and head.fence == fence)", "false")


def retry_blindly() -> None:
    """Have a client that loses the reply of one of seven writes, and writes again without looking for what it wrote."""
    numbers, execute = count(1), Engine.execute

    def lose(engine: Engine, call: Call) -> list[Any]:
        replies = execute(engine, call)
        if call.is_write and not next(numbers) % 7:
            raise Interrupted("the reply was lost on purpose")
        return replies

    Engine.execute = lose  # type: ignore[assignment,method-assign]
    append._look_for = lambda *_: _nowhere()


def _nowhere() -> Step[str]:
    yield from ()
    return ""


def _edit(script: Script, old: str, new: str) -> None:
    assert old in script.text
    script.text = script.text.replace(old, new)
    script.sha = sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    Script.known[script.sha] = script.text


SABOTAGE: dict[str, Callable[[], None]] = {
    "a subscriber that skips": skip,
    "a script without fences": forget_fences,
    "a client that retries blindly": retry_blindly,
}
"""What can be broken, by name."""
