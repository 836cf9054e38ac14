"""Waits with a timeout for an event that another thread or task sets."""

from __future__ import annotations

import threading
from contextlib import suppress

from scratchbus.engine.lazy_packages import asyncio


def wait(event: threading.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for at most this many seconds (None: no limit); return whether it is set."""
    return event.wait(seconds)


async def wait_async(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for at most this many seconds (None: no limit); return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
