"""Queues of jobs by key: a process does one job of a key at a time, and those that wait together.

A caller that finds no one at work does its own job in its own conversation. Jobs queued meanwhile are done by a
thread or task of its own, so that a caller that is cancelled neither keeps others waiting nor leaves jobs half done.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from scratchbus.engine.steps import Queued, Step
from scratchbus.telemetry.late import late

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures
    from concurrent.futures import Future
else:
    asyncio = late("asyncio")  # which programs that block need not import
    futures = late("concurrent.futures")

GATHERING = 0.002
"""Seconds for which a draining thread lets others queue more, since one batch of many costs less than many batches."""

Drive = Callable[[Step[None]], None]
AsyncDrive = Callable[[Step[None]], Awaitable[None]]


class _QueuedJob(NamedTuple):
    """A job, and the future that its caller waits for."""

    job: Any
    future: Future[Any]


class Queues:
    """The queues of one bus. Threads may share them; of event loops, one may use them after the other."""

    def __init__(self) -> None:
        self._user: object = None
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, list[_QueuedJob]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, queued: Queued, drive: Drive) -> Any:
        """Do a job after those before it; return its result or raise its error."""
        mine, is_first = self._join(queued, os.getpid())
        try:
            if is_first:
                try:
                    drive(_do(queued, [mine]))
                finally:
                    if self._has_more(queued.key):
                        threading.Thread(target=self._drain, args=(queued, drive), daemon=True).start()
            return mine.future.result()
        except BaseException:
            mine.future.cancel()
            raise

    async def run_async(self, queued: Queued, drive: AsyncDrive) -> Any:
        """Do a job after those before it; return its result or raise its error."""
        mine, is_first = self._join(queued, asyncio.get_running_loop())
        if is_first:
            try:
                await drive(_do(queued, [mine]))
            finally:
                if self._has_more(queued.key):
                    task = asyncio.create_task(self._drain_async(queued, drive))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        if mine.future.done():  # to wrap it would take another turn of the loop
            return mine.future.result()
        return await asyncio.wrap_future(mine.future)

    def _join(self, queued: Queued, user: object) -> tuple[_QueuedJob, bool]:
        """Queue a job; return it, and whether no one is at work."""
        if self._user != user:  # a forked child, or another event loop: those at work are not there any more
            self._user, self._lock, self._waiting, self._tasks = user, threading.Lock(), {}, set()
        mine = _QueuedJob(queued.job, futures.Future())
        with self._lock:
            others = self._waiting.get(queued.key)
            if others is None:
                self._waiting[queued.key] = []
                mine.future.set_running_or_notify_cancel()
            else:
                others.append(mine)
        return mine, others is None

    def _has_more(self, key: Hashable) -> bool:
        """Return whether more jobs wait; if none does, no one is at work from now on."""
        with self._lock:
            if not self._waiting.get(key):
                self._waiting.pop(key, None)
            return key in self._waiting

    def _take(self, key: Hashable) -> list[_QueuedJob]:
        """Return the jobs that wait and were not cancelled; if there are none, no one is at work from now on."""
        with self._lock:
            found = [each for each in self._waiting.get(key, ()) if each.future.set_running_or_notify_cancel()]
            if found:
                self._waiting[key] = []
            else:
                self._waiting.pop(key, None)
        return found

    def _drain(self, queued: Queued, drive: Drive) -> None:
        time.sleep(GATHERING)
        while taken := self._take(queued.key):
            try:
                drive(_do(queued, taken))
            except Exception as error:  # such as that the bus was closed
                _fail(taken, error)
            time.sleep(GATHERING)

    async def _drain_async(self, queued: Queued, drive: AsyncDrive) -> None:
        while taken := self._take(queued.key):
            try:
                await drive(_do(queued, taken))
            except Exception as error:
                _fail(taken, error)
            except BaseException as error:  # its loop ends, and with it all that waits
                _fail([*taken, *self._take(queued.key)], error)
                self._take(queued.key)
                raise


def _do(queued: Queued, taken: list[_QueuedJob]) -> Step[None]:
    """Do jobs together, and give each caller the outcome of its own."""
    outcomes = yield from queued.work([each.job for each in taken])
    for each, outcome in zip(taken, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            each.future.set_exception(outcome)
        else:
            each.future.set_result(outcome)


def _fail(taken: list[_QueuedJob], error: BaseException) -> None:
    for each in taken:
        if not each.future.done():
            each.future.set_exception(error)
