"""What scripts answer: a list that begins with a number, by which its kind is known."""

from __future__ import annotations

from typing import Any

from scratchbus.errors import EngineError, shown


def reply_of(script: str, reply: Any, *known: int) -> list[Any]:
    """Return the reply of a script, which has to begin with one of these numbers. Raises EngineError."""
    if isinstance(reply, list) and reply and reply[0] in known and isinstance(reply[0], int):
        return reply
    raise unknown_reply(script, reply)


def unknown_reply(script: str, reply: object) -> EngineError:
    """Return the error for a reply that this code does not know."""
    return EngineError(
        f"script {script!r} answered {shown(reply)}, which this code does not know; upgrade scratchbus everywhere, and"
        " check the engine with `scratchbus verify`"
    )
