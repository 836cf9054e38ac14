"""Waits of threads and tasks: for an event, with a timeout, and for a step that must not end half done."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from scratchbus.engine.lazy_packages import asyncio

T = TypeVar("T")


def wait(event: threading.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for at most this many seconds (None: no limit); return whether it is set."""
    return event.wait(seconds)


def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Cancel tasks; return those of the running event loop, whose end can be waited for."""
    found = list(tasks)
    for task in found:
        with suppress(RuntimeError):  # its event loop is closed
            task.cancel()
    return [task for task in found if task.get_loop() is asyncio.get_running_loop()]


async def finish_or_undo(step: Awaitable[T], undo: Callable[[T], Awaitable[object]]) -> T:
    """Return the result of a step; if the caller is cancelled, let the step end first, and undo it."""
    pending = asyncio.ensure_future(step)

    async def end() -> None:
        await asyncio.wait({pending})
        if not pending.cancelled() and pending.exception() is None:
            await undo(pending.result())

    try:
        return await asyncio.shield(pending)
    except asyncio.CancelledError:
        await asyncio.shield(end())
        raise


async def wait_async(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for at most this many seconds (None: no limit); return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
