"""Work and its jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Self, Unpack

from scratchbus.commands import change
from scratchbus.commands.claim import UNTRIED, LinkAction, Picked, PickFilter
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import ObservationPatch
from scratchbus.domain.values import Duration, check_whole
from scratchbus.engine.waits import finish_or_undo
from scratchbus.errors import ScratchbusError
from scratchbus.eventlog.reader import Stop, check_stop
from scratchbus.readmodel.scope import AsyncHost
from scratchbus.subscriptions.concurrency_async import MAX_AT_ONCE, check_handler, run_together
from scratchbus.subscriptions.consumer import NAP
from scratchbus.subscriptions.delivery_state import CONSUMER_ERRORS, reason_of
from scratchbus.telemetry import tracing
from scratchbus.telemetry.logs import stderr_logger
from scratchbus.work.agenda import Agenda
from scratchbus.work.job_state import DEFAULT_TERMS, RELEASE_ERRORS, TRANSIENT_ERRORS, JobState, WorkTerms

logger = stderr_logger()


class AsyncJob(JobState):
    """One observation, claimed for its worker: `resolve` it, or report another outcome.

    Every write carries the fence of the claim, and raises StaleFence once the claim has ended. In an `async with` an
    exception fails the job, is logged, and does not propagate; so does a block that ends without an outcome.
    """

    def __init__(
        self, bus: AsyncHost, page: str, ttl: Duration, picked: Picked, terms: WorkTerms = DEFAULT_TERMS
    ) -> None:
        super().__init__(bus.core, page, picked, ttl, terms)
        self._bus = bus

    async def resolve(
        self, *, reason: str | None = None, action: str | None = None, event_id: str | None = None
    ) -> Observation:
        """Close it as done; with an `action`, record that as `link` does, in the same batch."""
        return await self._bus.converse(self.transition_steps(change.Resolve, reason, event_id, action=action))

    async def review(self, *, reason: str | None = None, event_id: str | None = None) -> Observation:
        """Send it to review, and release it."""
        return await self._bus.converse(self.transition_steps(change.Review, reason, event_id))

    async def archive(self, *, reason: str | None = None, event_id: str | None = None) -> Observation:
        """Archive it for good."""
        return await self._bus.converse(self.transition_steps(change.ArchiveObservation, reason, event_id))

    async def update(
        self, *, event_id: str | None = None, release: bool = False, **changes: Unpack[ObservationPatch]
    ) -> Observation:
        """Replace its fields, like `Page.update`; the claim stays, unless you `release` it or the status closes it."""
        steps = self.command_steps(change.Update, event_id, changes=changes, release=release)
        return await self._bus.converse(steps)

    async def link(self, action: str, *, event_id: str | None = None) -> Observation:
        """Record an action taken because of it; the claim stays."""
        return await self._bus.converse(self.command_steps(LinkAction, event_id, action=action))

    async def release(self, *, event_id: str | None = None) -> Observation:
        """Release it at once for any worker; this does not count as an attempt."""
        return await self._bus.converse(self.release_steps(UNTRIED, event_id))

    async def fail(self, reason: str, *, delay: Duration | None = None, event_id: str | None = None) -> Observation:
        """Release it for another attempt after `delay`, or send it to review after the last attempt."""
        return await self._bus.converse(self.fail_steps(reason, delay, event_id))

    async def __aenter__(self) -> Self:
        if tracing.active is not None:
            acting = tracing.active.act(self.claim.by, self.observation, await self._bus.converse(self.origin()))
            self._acting.enter_context(acting)
        return self

    async def __aexit__(self, kind: Any, problem: BaseException | None, trace: Any) -> bool:
        try:
            await self._settle(problem)
        finally:
            self._acting.__exit__(kind, problem, trace)
        return isinstance(problem, Exception)

    async def _settle(self, problem: BaseException | None) -> None:
        """Report an outcome unless the worker already has."""
        if isinstance(problem, Exception):
            logger.warning("a handler failed", observation=self.id, attempt=self.attempt, reason=reason_of(problem))
        if self.is_out:
            with suppress(*RELEASE_ERRORS):
                await self._bus.converse(self.settle_steps(problem))


class AsyncWork:
    """Work for competing workers. Iterate over it in an `async with` to get one job after another.

    Asking for the next job fails the one before unless it has an outcome. An exception that leaves the `async with`
    fails the current job; otherwise leaving releases it. For one task; others open their own. Made by `bus.work`.
    """

    def __init__(
        self,
        bus: AsyncHost,
        name: str,
        wanted: PickFilter,
        pages: str | Collection[str] | None,
        ttl: Duration,
        terms: WorkTerms,
        stop: Stop | None = None,
    ) -> None:
        self._bus = bus
        self._ttl = ttl
        self._terms = terms
        self._stop = check_stop(stop)
        self._shared = (bus, name, wanted, pages, ttl, terms)
        self._others: list[AsyncWork] = []
        self._woken = asyncio.Event()
        self._is_closed = False
        self._job: AsyncJob | None = None
        self._agenda = Agenda(bus.core, name, wanted, pages, ttl, terms, self._woken.set, bus.feeds.feed)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._bus!r}>"

    @property
    def name(self) -> str:
        """The name of the work."""
        return self._agenda.name

    async def run(
        self, handler: Callable[[AsyncJob], Awaitable[object]], stop: Stop | None = None, *, concurrency: int = 1
    ) -> None:
        """Pass every job to a handler; it fails on an exception or without an outcome. Ends when `stop` is set.

        With `concurrency`, this many jobs are handled at once (1,000 at most). Raises InvalidInput.
        """
        check_handler(handler)
        self._stop = check_stop(stop) or self._stop
        others = check_whole("concurrency", concurrency, maximum=MAX_AT_ONCE) - 1
        self._others = [AsyncWork(*self._shared, self._stop) for _ in range(others)]
        if self._is_closed:  # before there were others to close
            for each in self._others:
                await each.close()
        await run_together([partial(each._run, handler) for each in (self, *self._others)], self.close)
        for each in self._others:
            await each.close()

    async def _run(self, handler: Callable[[AsyncJob], Awaitable[object]]) -> None:
        async for job in self:
            async with job:
                await handler(job)

    async def close(self) -> None:
        """End the iteration, and release the current job. Any task may call it."""
        if self._is_closed:
            return
        self._is_closed = True
        self._agenda.leave()
        try:
            await self._release_job()
        finally:
            self._woken.set()
            for each in self._others:
                with suppress(ScratchbusError):  # the first error is raised; all must end
                    await each.close()

    def __aiter__(self) -> AsyncIterator[AsyncJob]:
        return self

    async def __anext__(self) -> AsyncJob:
        """Return the next job; wait for it if there is none."""
        job = self._detach_job()
        if job is not None:
            await job._settle(None)
        if self._agenda.has_many:
            for shard in self._agenda.shards:
                self._bus.feeds.pump(shard)  # a higher priority on another page must be noticed during a job
        while not self._is_stopped():
            self._woken.clear()
            try:
                # asyncio only:
                found = await finish_or_undo(self._bus.converse(self._agenda.seek()), self._give_back)
                # end
                # blocking only:
                # found = self._bus.converse(self._agenda.seek())
                # end
                if not isinstance(found, Picked):
                    await self._wait(found)
                    continue
                job = self._attach_job(found)
                if not self._is_closed and not job.is_lost:
                    return job
                await self._release_job()
            except TRANSIENT_ERRORS as problem:
                await self._bus.feeds.wait((), self._woken, self._agenda.pause_after(problem))
        raise StopAsyncIteration

    # asyncio only:
    async def _give_back(self, found: Picked | float) -> None:
        if isinstance(found, Picked):
            with suppress(*RELEASE_ERRORS):
                await AsyncJob(self._bus, found.observation.page, self._ttl, found, self._terms).release()

    # end
    def _attach_job(self, picked: Picked) -> AsyncJob:
        self._job = AsyncJob(self._bus, picked.observation.page, self._ttl, picked, self._terms)
        self._bus.keeper.add(self._job)
        return self._job

    def _detach_job(self) -> AsyncJob | None:
        job, self._job = self._job, None
        if job is not None:
            self._bus.keeper.remove(job)
        return job

    async def _release_job(self) -> None:
        job = self._detach_job()
        if job is not None and job.is_out:
            with suppress(*RELEASE_ERRORS):
                await job.release()

    async def _wait(self, seconds: float) -> None:
        """Wait until there may be a job, and check regularly whether to stop."""
        deadline = time.monotonic() + seconds
        while not self._woken.is_set() and not self._is_stopped() and (remaining := deadline - time.monotonic()) > 0:
            await self._bus.feeds.wait(self._agenda.shards, self._woken, min(NAP, remaining))
            self._agenda.reset_backoff()

    def _is_stopped(self) -> bool:
        return self._is_closed or (self._stop is not None and self._stop.is_set())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        job = self._job
        try:
            if job is not None and isinstance(problem, Exception) and not isinstance(problem, CONSUMER_ERRORS):
                self._detach_job()
                await job._settle(problem)
        finally:
            await self.close()
