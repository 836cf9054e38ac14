"""What an earlier request with the same `Idempotency-Key` published, so that a retry gets its answer."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from scratchbus import AsyncBus
from scratchbus.errors import LogError


class Publication(NamedTuple):
    """The version that an event published, and the text that it replaced; None for the first version."""

    version: int
    replaced: str | None


async def find_publication(bus: AsyncBus, subject: str, event_id: str | None) -> Publication | None:
    """Return what the event with this id published for a subject, `types` or `relations`; None if nothing is found."""
    if event_id is None:
        return None
    version, replaced = 0, None
    with suppress(LogError):  # events that have left the log cannot be counted
        async for event in bus.events(pages=["_bus"], subjects=[subject]):
            version += 1
            if event.id == event_id:
                return Publication(version, replaced)
            replaced = getattr(event, "text", None)
    return None
