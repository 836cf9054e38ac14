"""Renewal of leases and claims in the background, by one thread or task per shard of a bus.

Each lease or claim says when it is due and how to renew it, and notices itself when it was lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from scratchbus.engine.at_fork import reset_in_forks
from scratchbus.engine.lazy_packages import asyncio
from scratchbus.engine.waits import cancel_all, wait_async
from scratchbus.telemetry.logs import stderr_logger

if TYPE_CHECKING:
    from scratchbus.engine.steps import Step

CHECK_SECONDS = 0.1
"""Seconds between two checks for what is due while something fails or acks are pending."""

MAX_PAUSE = 5.0
"""The most seconds between two attempts at a renewal that keeps failing."""


def pause_for(seconds: float) -> float:
    """Return the longest such pause for a lease or claim of this length; it must not end soon after a repair."""
    return min(MAX_PAUSE, seconds / 6)


logger = stderr_logger()


class Renewable(Protocol):
    """A lease or claim to renew, or a live page whose clock must be updated.

    It is checked at least every `check_seconds`. If its renewal keeps failing, it is tried again after `max_pause`
    seconds at the latest.
    """

    max_pause: float

    @property
    def shard(self) -> int:
        """The shard that it is renewed on."""
        ...

    @property
    def check_seconds(self) -> float:
        """The most seconds until the next check whether it is due."""
        ...

    def is_due(self, now: float) -> bool:
        """Return whether it is time to renew it, by the monotonic clock (seconds)."""
        ...

    def keep(self) -> Step[None]:
        """Renew it. An error is logged, and the renewal is retried after a pause."""
        ...


class FailedRenewals:
    """The renewals that fail: each is tried again after a pause that doubles, up to its `max_pause`."""

    def __init__(self) -> None:
        self._failed: dict[int, tuple[float, float]] = {}  # by identity: the last pause, and when it ends

    def due(self, renewables: list[Renewable]) -> list[Renewable]:
        """Return what is due, without what failed too short a time ago to be tried again."""
        now = time.monotonic()
        return [each for each in renewables if each.is_due(now) and self._failed.get(id(each), (0.0, now))[1] <= now]

    def add(self, renewable: Renewable, problem: Exception) -> None:
        """Log the failure of a renewal, and lengthen its pause."""
        last, _ = self._failed.get(id(renewable), (CHECK_SECONDS, 0.0))
        pause = min(renewable.max_pause, 2 * last)
        self._failed[id(renewable)] = pause, time.monotonic() + pause
        logger.warning("a renewal failed; trying again", reason=f"{type(problem).__name__}: {problem}")

    def seconds(self, renewables: list[Renewable]) -> float:
        """Return the seconds until the next check for what is due."""
        if self._failed:
            return CHECK_SECONDS
        return min((each.check_seconds for each in renewables), default=CHECK_SECONDS)

    def remove(self, renewable: Renewable) -> None:
        """Forget the failures of what was renewed, or need not be any longer."""
        self._failed.pop(id(renewable), None)


class Keeper:
    """Renews the leases and claims of a Bus, with a thread per shard: a server that hangs delays those of no other."""

    def __init__(self, run: Callable[[Step[None]], Any]) -> None:
        self._run = run
        self._threads: dict[int, _KeeperThread] = {}
        self._is_closed = False

    def add(self, renewable: Renewable) -> None:
        """Renew this from now on, unless the bus is closed."""
        shard = renewable.shard
        thread = self._threads.get(shard) or self._threads.setdefault(shard, _KeeperThread(self._run))
        if not self._is_closed:  # since `close` may have missed a new thread
            thread.add(renewable)

    def remove(self, renewable: Renewable) -> None:
        """Stop renewing this."""
        if renewable.shard in self._threads:
            self._threads[renewable.shard].remove(renewable)

    def close(self) -> None:
        """Stop renewing anything."""
        self._is_closed = True
        for thread in list(self._threads.values()):
            thread.close()


class _KeeperThread:
    """Renews the leases and claims of a shard, in a thread that runs while there are any."""

    def __init__(self, run: Callable[[Step[None]], Any]) -> None:
        self._run = run
        self._closed = threading.Event()
        self.reset_after_fork()
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """See `Threaded`: what the parent holds is renewed there."""
        self._renewables: list[Renewable] = []
        self._failures = FailedRenewals()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._pause = 0.0
        self._is_running = False

    def add(self, renewable: Renewable) -> None:
        """Renew this from now on, unless the bus is closed."""
        with self._lock:
            if self._closed.is_set():
                return
            if not self._is_running:
                threading.Thread(target=self._renew_due, name="keeper", daemon=True).start()  # it waits for the lock
                self._is_running = True
            self._renewables.append(renewable)
            if renewable.check_seconds < self._pause:
                self._woken.set()

    def remove(self, renewable: Renewable) -> None:
        """Stop renewing this."""
        with self._lock:
            if renewable in self._renewables:
                self._renewables.remove(renewable)
            self._failures.remove(renewable)

    def close(self) -> None:
        """Stop renewing anything."""
        with self._lock:
            self._closed.set()
            self._renewables.clear()
            self._woken.set()

    def _renew_due(self) -> None:
        while True:
            with self._lock:
                due = self._failures.due(self._renewables)
                if not self._renewables:
                    self._is_running, self._pause = False, 0.0
                    return
                self._woken.clear()
                self._pause = 0.0
            for renewable in due:
                try:
                    self._run(renewable.keep())
                except Exception as problem:  # one failure must not stop the others
                    if self._closed.is_set():
                        return
                    with self._lock:
                        if renewable in self._renewables:
                            self._failures.add(renewable, problem)
                else:
                    self._failures.remove(renewable)
            with self._lock:
                pause = self._pause = self._failures.seconds(self._renewables)
            self._woken.wait(pause)


class AsyncKeeper:
    """Renews the leases and claims of an AsyncBus, with a task per shard: see `Keeper`."""

    def __init__(self, run: Callable[[Step[None]], Awaitable[Any]]) -> None:
        self._run = run
        self._tasks: dict[int, _KeeperTask] = {}
        self._is_closed = False

    def add(self, renewable: Renewable) -> None:
        """Renew this from now on, unless the bus is closed."""
        if not self._is_closed:
            shard = renewable.shard
            task = self._tasks[shard] = self._tasks.get(shard) or _KeeperTask(self._run)
            task.add(renewable)

    def remove(self, renewable: Renewable) -> None:
        """Stop renewing this."""
        if renewable.shard in self._tasks:
            self._tasks[renewable.shard].remove(renewable)

    async def close(self) -> None:
        """Stop renewing anything."""
        self._is_closed = True
        if own := cancel_all([running for task in self._tasks.values() for running in task.stop()]):
            await asyncio.wait(own)  # this raises only the caller's own cancellation


class _KeeperTask:
    """Renews the leases and claims of a shard, in a task that runs while there are any."""

    def __init__(self, run: Callable[[Step[None]], Awaitable[Any]]) -> None:
        self._run = run
        self._renewables: list[Renewable] = []
        self._failures = FailedRenewals()
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._pause = 0.0

    def add(self, renewable: Renewable) -> None:
        """Renew this from now on."""
        if self._task is not None and self._task.get_loop() is not asyncio.get_running_loop():
            cancel_all([self._task])
            self._renewables, self._failures, self._task = [], FailedRenewals(), None  # their holders have ended
            self._woken = asyncio.Event()
        self._renewables.append(renewable)
        if renewable.check_seconds < self._pause:
            self._woken.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._renew_due(), name="keeper")

    def remove(self, renewable: Renewable) -> None:
        """Stop renewing this."""
        with suppress(ValueError):
            self._renewables.remove(renewable)
        self._failures.remove(renewable)

    def stop(self) -> list[asyncio.Task[None]]:
        """Stop renewing anything; return the task to cancel, if there is one."""
        self._renewables.clear()
        return [] if self._task is None else [self._task]

    async def _renew_due(self) -> None:
        while self._renewables:
            for renewable in self._failures.due(self._renewables):
                try:
                    await self._run(renewable.keep())
                except Exception as problem:  # one failure must not stop the others
                    if renewable in self._renewables:
                        self._failures.add(renewable, problem)
                else:
                    self._failures.remove(renewable)
            self._pause = self._failures.seconds(self._renewables)
            await wait_async(self._woken, self._pause)
            self._woken.clear()
