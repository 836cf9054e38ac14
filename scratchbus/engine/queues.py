"""Queues of jobs by key: a process works on one batch of jobs per key at a time; jobs queued meanwhile form the next.

If a queue is idle, the caller does its own job in its own conversation. A separate thread or task does the jobs queued
meanwhile, so that a cancelled caller neither delays the others nor leaves jobs half done.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from scratchbus.engine.lazy_packages import asyncio
from scratchbus.engine.steps import Queued, Step
from scratchbus.telemetry.lazy import imported_on_first_use

if TYPE_CHECKING:
    from concurrent.futures import Future

with imported_on_first_use(__name__):
    from concurrent import futures

GATHERING = 0.002
"""Seconds that a draining thread waits for more jobs, since one large batch costs less than many small ones."""

Drive = Callable[[Step[Any]], Any]
AsyncDrive = Callable[[Step[Any]], Awaitable[Any]]


_beginning = threading.Lock()
"""Held while queues are emptied: a job that another thread has just queued would never be done."""

os.register_at_fork(before=_beginning.acquire, after_in_parent=_beginning.release, after_in_child=_beginning.release)


class _QueuedJob(NamedTuple):
    """A job, and the future that its caller waits for."""

    job: Any
    future: Future[Any]


class Queues:
    """The queues of one bus. Threads may share them; event loops may use them one after another, not at once."""

    def __init__(self) -> None:
        self._user: object = None
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, list[_QueuedJob]] = {}
        self._doing: dict[Hashable, int] = {}  # the threads that do their own jobs
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, queued: Queued, drive: Drive) -> Any:
        """Do a job after those queued before it; return its result or raise its error."""
        future = self._join(queued, os.getpid(), threading.get_ident())
        if future is None:
            try:
                (outcome,) = drive(queued.work([queued.job]))
            finally:
                if self._has_more(queued.key):
                    self._start_draining(queued, drive)
            return _result(outcome)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def run_async(self, queued: Queued, drive: AsyncDrive) -> Any:
        """Do a job after those queued before it; return its result or raise its error."""
        future = self._join(queued, asyncio.get_running_loop())
        if future is not None:
            return await asyncio.wrap_future(future)
        try:
            (outcome,) = await drive(queued.work([queued.job]))
        finally:
            if self._has_more(queued.key):
                task = asyncio.create_task(self._drain_async(queued, drive))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return _result(outcome)

    def _join(self, queued: Queued, user: object, thread: int = 0) -> Future[Any] | None:
        """Queue a job and return its future; if the queue was idle, return None: the caller does it.

        So does a thread that already does one by this key: Ctrl-C interrupted it before the queue was marked as idle.
        """
        if self._user != user:
            self._begin(user)
        with self._lock:
            queue = self._waiting.get(queued.key)
            if queue is None or self._doing.get(queued.key) == thread:
                if thread:
                    self._doing[queued.key] = thread
                self._waiting.setdefault(queued.key, [])
                return None
            job = _QueuedJob(queued.job, futures.Future())
            queue.append(job)
        return job.future

    def _begin(self, user: object) -> None:
        """Begin with empty queues in a forked child, or another event loop: the old workers are gone."""
        with _beginning:
            if self._user != user:
                self._lock, self._waiting, self._doing, self._tasks = threading.Lock(), {}, {}, set()
                self._user = user  # last, since others look at it without the lock

    def _has_more(self, key: Hashable) -> bool:
        """Return whether jobs are waiting; if not, mark the queue as idle."""
        with self._lock:
            if not self._waiting.get(key):
                self._waiting.pop(key, None)
                self._doing.pop(key, None)
            return key in self._waiting

    def _take(self, key: Hashable) -> list[_QueuedJob]:
        """Return the waiting jobs that were not cancelled; if there are none, mark the queue as idle."""
        with self._lock:
            found = [each for each in self._waiting.get(key, ()) if each.future.set_running_or_notify_cancel()]
            if found:
                self._waiting[key] = []
            else:
                self._waiting.pop(key, None)
        return found

    def _start_draining(self, queued: Queued, drive: Drive) -> None:
        """Do the waiting jobs in a thread; in this one if no other can be started."""
        try:
            threading.Thread(target=self._drain, args=(queued, drive), daemon=True).start()
            with self._lock:
                if self._doing.get(queued.key) == threading.get_ident():
                    del self._doing[queued.key]
        except RuntimeError:
            self._drain(queued, drive)

    def _drain(self, queued: Queued, drive: Drive) -> None:
        time.sleep(GATHERING)
        while jobs := self._take(queued.key):
            try:
                drive(_do(queued, jobs))
            except Exception as error:  # such as BusClosed
                _fail(jobs, error)
            time.sleep(GATHERING)

    async def _drain_async(self, queued: Queued, drive: AsyncDrive) -> None:
        while jobs := self._take(queued.key):
            try:
                await drive(_do(queued, jobs))
            except Exception as error:
                _fail(jobs, error)
            except BaseException as error:  # the event loop ends, so no waiting job can run
                _fail([*jobs, *self._take(queued.key)], error)
                self._take(queued.key)
                raise


def _result(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _do(queued: Queued, jobs: list[_QueuedJob]) -> Step[None]:
    """Do jobs together and give each caller its own result or error."""
    outcomes = yield from queued.work([each.job for each in jobs])
    for each, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            each.future.set_exception(outcome)
        else:
            each.future.set_result(outcome)


def _fail(jobs: list[_QueuedJob], error: BaseException) -> None:
    for each in jobs:
        if not each.future.done():
            each.future.set_exception(error)
