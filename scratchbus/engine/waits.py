"""Waits of threads and tasks: for an event, with a timeout, and for a step that must not end half done."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from scratchbus.engine.lazy_packages import asyncio

T = TypeVar("T")


class StopSignal(threading.Event):
    """An event that also calls functions when it is set, so that a wait for something else need not check it."""

    def __init__(self) -> None:
        super().__init__()
        self._functions: list[Callable[[], object]] = []
        self._guard = threading.Lock()

    def set(self) -> None:
        """Set it, and call the functions. Not for signal handlers, which may interrupt a thread that holds a lock."""
        super().set()
        with self._guard:
            functions = list(self._functions)
        for function in functions:
            function()

    @contextmanager
    def calling(self, function: Callable[[], object]) -> Iterator[None]:
        """Call this function when the event is set inside, or at once if it is; perhaps twice."""
        with self._guard:
            self._functions.append(function)
        try:
            if self.is_set():
                function()
            yield
        finally:
            with self._guard:
                self._functions.remove(function)


def wait(event: threading.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for at most this many seconds (None: no limit); return whether it is set."""
    return event.wait(seconds)


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call made in another thread.

    Raises TimeoutError if it takes longer; the thread then continues, and its result is dropped. It is raised at once
    if no thread can be started, as at a limit or while the process ends.
    """
    is_done = threading.Event()
    results: list[T] = []
    errors: list[Exception] = []

    def make() -> None:
        try:
            results.append(call())
        except Exception as error:
            errors.append(error)
        is_done.set()

    try:
        threading.Thread(target=make, name="scratchbus call", daemon=True).start()
    except RuntimeError:
        raise TimeoutError from None
    if not is_done.wait(seconds):
        raise TimeoutError
    for error in errors:
        raise error
    return results[0]


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
