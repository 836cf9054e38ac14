"""Scheduled jobs that keep their intervals when the clock of the machine is set."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from apscheduler.job import Job
from apscheduler.jobstores.memory import MemoryJobStore

_MIN_STEP = 2.0
"""The smallest step of the clock, in seconds, that is followed. Smaller ones add up until they are."""


class SteadyJobStore(MemoryJobStore):  # type: ignore[misc]  # APScheduler ships no types
    """Moves all jobs by as much as the wall clock is set, so that they run when they would have run.

    APScheduler waits for moments of the wall clock. A job would not run for an hour after the clock was set back by
    one, and all its runs of years would be listed at once after the clock of a machine that booted in 1970 was set.
    """

    def __init__(self) -> None:
        super().__init__()
        self._offset = _clock_offset()

    def get_due_jobs(self, now: datetime) -> list[Job]:
        """Return the jobs that are due."""
        self._follow_clock()
        return super().get_due_jobs(now)  # type: ignore[no-any-return]

    def get_next_run_time(self) -> datetime | None:
        """Return when the next job is due. The clock may have been set while other jobs ran."""
        self._follow_clock()
        return super().get_next_run_time()  # type: ignore[no-any-return]

    def _follow_clock(self) -> None:
        step = _clock_offset() - self._offset
        if abs(step) < _MIN_STEP:
            return
        self._offset += step
        for job in self.get_all_jobs():
            job.modify(next_run_time=job.next_run_time + timedelta(seconds=step))


def _clock_offset() -> float:
    """Return how far the wall clock is ahead of the monotonic one, in seconds."""
    return datetime.now(UTC).timestamp() - time.monotonic()
