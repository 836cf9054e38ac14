"""The check whether a write with a caller's event id is a retry."""

from __future__ import annotations

from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory_edit import put
from scratchbus.domain.event import Event
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Step
from scratchbus.eventlog.append import find_attempt
from scratchbus.readmodel.scope import Core


def is_retry(core: Core, occasion: Occasion, subject: str) -> Step[bool]:
    """Return whether an event with a caller's id is in the log. Raises EventIdReused for another write."""
    return (yield from earlier_attempt(core, occasion, subject)) is not None


def earlier_attempt(core: Core, occasion: Occasion, subject: str) -> Step[list[Position] | None]:
    """Return the position of the event with a caller's id; None if there is none. Raises EventIdReused."""
    if not occasion.digest:
        return None
    write = put(occasion, occasion.event(Event, subject), None)
    write.body, write.argument = b"{}", ""
    return (yield from find_attempt(core.log, occasion.page, write))
