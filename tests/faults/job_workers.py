"""Workers as processes, which tests kill or pause while they hold a job."""

from __future__ import annotations

import time
from pathlib import Path

from scratchbus import Bus
from scratchbus.errors import Conflict
from scratchbus.work import Job

TTL = "500ms"


def work_on_jobs(
    url: str, bus: str, name: str, said: Path, go: Path | None, instance: str | None = None, ttl: str = TTL
) -> None:
    """Resolve jobs one by one, with `go` only once that file exists; write each start and outcome to `said`."""
    with (
        Bus.connect(url, bus=bus, source=name, instance=instance) as connected,
        connected.work("work", ttl=ttl) as jobs,
        said.open("a", buffering=1) as file,
    ):
        for job in jobs:
            file.write(f"begun {job.id} {job.fence}\n")
            while go is not None and not go.exists():
                time.sleep(0.01)
            file.write(f"{_end(job, name)} {job.id} {job.fence}\n")


def _end(job: Job, name: str) -> str:
    try:
        job.resolve(reason=name)
    except Conflict as refused:
        return type(refused).__name__
    return "done"
