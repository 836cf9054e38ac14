"""Workers that are killed or paused while they hold a job, and idle workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.domain.events import Claimed
from scratchbus.engine.steps import Call
from tests.clock import renew_a_minute_at_each_check
from tests.faults.checker import check
from tests.faults.interposing import Send, interposed
from tests.faults.job_workers import work_on_jobs
from tests.faults.processes import Crew, kill
from tests.faults.servers import Server
from tests.inspection import project
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.real

JOBS = 100
ENDS = ("released", "lapsed", "status_changed")


@pytest.fixture
def bus(shared_server: Server, bus_name: str) -> Iterator[Bus]:
    with Bus.connect(shared_server.url, bus=bus_name, source="parent", max_observations=JOBS, shards=2) as bus:
        yield bus


def assert_one_holder_at_a_time(bus: Bus) -> None:
    """Check in the log that each claim begins after the end of the previous one, with the next fence."""
    held: dict[str, Any] = {}
    fences = Counter[str]()
    for event in bus.events():
        if isinstance(event, Claimed):
            if event.fence is None:
                assert event.subject not in held, f"{event.subject} has two holders"
                fences[event.subject] += 1
            else:
                assert event.fence == fences[event.subject]
            held[event.subject] = event
        elif event.kind in ENDS and event.subject in held:
            claimed = held.pop(event.subject)
            assert event.kind != "lapsed" or event.ms >= claimed.ms + claimed.ttl


@pytest.mark.slow
def test_each_job_is_done_once_despite_killed_and_paused_workers(
    shared_server: Server, bus: Bus, crew: Crew, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    def start(name: str, go: Path | None = None) -> tuple[BaseProcess, Path]:
        said = tmp_path / name
        return crew.start(work_on_jobs, shared_server.url, bus.core.log.bus, name, said, go), said

    for page in ("one", "two"):
        bus.page(page).add_many([NewObservation(type="observation", content=f"{n}") for n in range(JOBS // 2)])
    stuck = [start(f"stuck-{n}", go) for n in range(3)]
    for _, said in stuck:
        eventually(lambda: said.exists() and said.read_text())  # noqa: B023  # called immediately
    for process, _ in stuck[:2]:
        kill(process)
    paused, its = stuck[2]
    os.kill(paused.pid or 0, signal.SIGSTOP)
    for n in range(2):
        start(f"quick-{n}")
    eventually(lambda: not any(bus.page(page).active(limit=1) for page in ("one", "two")))
    go.touch()
    os.kill(paused.pid or 0, signal.SIGCONT)
    eventually(lambda: its.read_text().count("\n") == 2)
    assert its.read_text().splitlines()[1].startswith("StaleFence ")
    ends = list(bus.events(kinds=["status_changed"]))
    assert len(ends) == len({event.subject for event in ends}) == JOBS
    lost = {id: int(fence) for _, id, fence in (said.read_text().split()[:3] for _, said in stuck)}
    fences = {id: found.fence for page in ("one", "two") for id in lost if (found := bus.page(page).get(id))}
    assert fences.keys() == lost.keys()
    assert all(fences[id] > fence for id, fence in lost.items()), "other workers have claimed these jobs since"
    assert_one_holder_at_a_time(bus)
    crew.close()
    project(bus)
    assert check(bus) == []


def test_a_restarted_instance_gets_its_killed_workers_job_again(
    shared_server: Server, bus: Bus, crew: Crew, tmp_path: Path
) -> None:
    def start(said: Path, go: Path | None, instance: str) -> BaseProcess:
        return crew.start(work_on_jobs, shared_server.url, bus.core.log.bus, "worker", said, go, instance, "1h")

    def begun(said: Path) -> bool:
        return said.exists() and bool(said.read_text())

    first, second, after = (tmp_path / name for name in ("first", "second", "after"))
    page = bus.page("one")
    job = page.add("observation", "what the first has")
    victim = start(first, tmp_path / "never", "worker-7")
    eventually(lambda: begun(first))
    other = page.add("observation", "what the second has")
    start(second, tmp_path / "never", "worker-8")
    eventually(lambda: begun(second))
    kill(victim)
    start(after, None, "worker-7")
    eventually(lambda: after.exists() and after.read_text().count("\n") == 2)
    assert after.read_text().splitlines() == [f"begun {job.id} 2", f"done {job.id} 2"]
    claim = page.get(other.id).claim
    assert claim is not None, "the claim of another instance is kept"
    assert claim.fence == 1
    crew.close()
    project(bus)
    assert check(bus) == []


def test_a_server_that_hangs_delays_no_renewals_of_jobs_on_other_shards(
    shared_server: Server, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew_a_minute_at_each_check(monkeypatch)
    page_of = {bus.core.log.shard(name): name for name in map(str, range(20))}
    sick, sound = page_of.values()
    may_answer = threading.Event()

    def around(call: Call, send: Send) -> list[Any]:
        assert call.shard != bus.core.log.shard(sick) or may_answer.wait(PATIENCE)
        return send()

    with (
        Bus.connect(shared_server.url, bus=bus.core.log.bus) as other,
        bus.work("one", pages=[sick], ttl="1m") as first,
        bus.work("two", pages=[sound], ttl="1m") as second,
    ):
        for page in page_of.values():
            bus.page(page).add("observation", "x")
        jobs = next(first), next(second)

        def renewals() -> int:
            return len(list(other.events(pages=[sound], kinds=["claimed"])))

        with interposed(bus, around):
            before = renewals()
            eventually(lambda: renewals() > before + 1)
            may_answer.set()
        assert not any(job.is_lost for job in jobs)


@pytest.mark.slow
def test_idle_workers_only_wait_on_the_log(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with Bus.connect(server.url, source="idle") as bus, server.client() as client:

        def calls() -> Counter[str]:
            stats: Any = client.info("commandstats")
            return Counter({name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()})

        page = bus.page()
        page.claim(page.add("observation", "held").id, ttl="1h")
        page.review(page.add("observation", "in review").id)
        stop, seen = threading.Event(), list[str]()

        def handle(job: Any) -> None:
            seen.append(job.resolve().content)

        threads = [threading.Thread(target=bus.work("idle", pages="main").run, args=(handle, stop)) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            page.add("observation", "the last for a while")
            eventually(lambda: seen)
            reads = calls()["xread"]
            eventually(lambda: calls()["xread"] > reads + 1)
            before, begun = calls(), time.monotonic()
            eventually(lambda: calls()["xread"] >= before["xread"] + 3)
            sent = calls() - before
            assert sent.keys() <= {"xread", "xrange", "get", "info"}
            assert sent["xread"] <= 4 * max(1.0, time.monotonic() - begun)
            page.add("observation", "at last")
            eventually(lambda: len(seen) == 2)
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
