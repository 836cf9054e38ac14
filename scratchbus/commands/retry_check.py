"""The check whether a write with a caller's event id is a retry."""

from __future__ import annotations

from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory_edit import put
from scratchbus.domain.event import Event
from scratchbus.engine.steps import Step
from scratchbus.errors import VersionConflict
from scratchbus.eventlog.append import append
from scratchbus.readmodel.scope import Core

_NEVER = -1  # no subject has this version


def is_retry(core: Core, occasion: Occasion, subject: str) -> Step[bool]:
    """Return whether an event with a caller's id is in the log. Raises EventIdReused for another write."""
    if not occasion.digest:
        return False
    write = put(occasion, occasion.event(Event, subject), _NEVER)
    write.body, write.argument = b"{}", ""
    try:
        yield from append(core.log, occasion.page, [write])
    except VersionConflict:
        return False
    return True
