"""Waits for an event that a thread, or a task, sets when there is something new."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from scratchbus.telemetry.late import late

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = late("asyncio")  # which programs that block need not import


def wait(woken: threading.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for this many seconds at most (None: for any time); return whether it is."""
    return woken.wait(seconds)


async def wait_async(woken: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for this many seconds at most (None: for any time); return whether it is."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await woken.wait()
    return woken.is_set()
