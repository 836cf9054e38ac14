"""An open bus whose embedded engine crashes or is stopped."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.daemon import runtime
from scratchbus.domain.events import Added
from scratchbus.engine import connect
from scratchbus.engine.embedded.server import EmbeddedEngine, ensure_running, find_running, stop
from scratchbus.errors import EngineUnreachable
from scratchbus.eventlog import reader
from tests.log.engine_processes import DURABLE, kill
from tests.waiting import eventually

pytestmark = pytest.mark.real


def engine_of(directory: Path) -> EmbeddedEngine:
    running = find_running(directory)
    assert running is not None
    return running


def contents(bus: Bus) -> list[str]:
    return sorted(seen.content for seen in bus.page().list(limit=None))


def test_an_open_bus_restarts_a_killed_engine_without_loss(directory: Path) -> None:
    with Bus.connect(f"embedded:{directory}", source="tester", max_observations=1000, **DURABLE) as bus:
        added: list[str] = []
        for round in range(3):
            added += [bus.page().add("observation", f"{round}-{number}").content for number in range(50)]
            killed = engine_of(directory)
            kill(killed)
            assert contents(bus) == sorted(added)
            assert engine_of(directory).pid != killed.pid
            kill(engine_of(directory))
            added.append(bus.page().add("observation", f"{round}: written after the crash").content)
        assert [event.content for event in bus.events() if isinstance(event, Added)] == added


async def test_an_async_bus_restarts_a_killed_engine_off_its_event_loop(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncBus.connect(f"embedded:{directory}", source="tester", **DURABLE) as bus:
        added = [(await bus.page().add("observation", f"{number}")).content for number in range(20)]
        kill(engine_of(directory))
        starters: list[threading.Thread] = []

        def start(*where: Path, **how: Any) -> EmbeddedEngine:
            starters.append(threading.current_thread())
            return ensure_running(*where, **how)

        monkeypatch.setattr(connect, "ensure_running", start)
        assert [seen.content for seen in await bus.page().list()] == added[::-1]
        assert len(starters) == 1
        assert starters[0] is not threading.current_thread()
        kill(engine_of(directory))
        await bus.page().add("observation", "written after the crash")


def test_many_threads_restart_one_engine(directory: Path) -> None:
    with Bus.connect(f"embedded:{directory}", source="tester", max_observations=1000, **DURABLE) as bus:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: bus.page().add("observation", f"{number}"), range(40)))
            kill(engine_of(directory))
            list(pool.map(lambda number: bus.page().add("observation", f"{number}"), range(40, 80)))
        assert len(contents(bus)) == 80


def test_a_follower_continues_after_an_engine_crash(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "STOPPABLE_BLOCK_MS", 20)
    seen: list[str] = []
    halt = threading.Event()
    with Bus.connect(f"embedded:{directory}", source="tester", **DURABLE) as bus:

        def follow() -> None:
            seen.extend(each.content for each in bus.events(follow=True, stop=halt) if isinstance(each, Added))

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            bus.page().add("observation", "before")
            eventually(lambda: seen == ["before"])
            kill(engine_of(directory))
            eventually(lambda: find_running(directory) is not None)
            bus.page().add("observation", "after")
            eventually(lambda: seen == ["before", "after"])
        finally:
            halt.set()
            thread.join(30)


@pytest.mark.alone
def test_an_open_bus_does_not_restart_a_stopped_engine(directory: Path) -> None:
    with Bus.connect(f"embedded:{directory}", source="tester", **DURABLE) as bus:
        bus.page().add("observation", "before")
        assert stop(directory)
        begun = time.monotonic()
        for operation in (
            bus.page().list,
            bus.position,
            lambda: bus.page().add("observation", "x"),
            bus.events().__next__,
        ):
            with pytest.raises(EngineUnreachable, match="was stopped; start it with `scratchbus up`"):
                operation()
        assert time.monotonic() - begun < 3
        assert find_running(directory) is None
        with Bus.connect(f"embedded:{directory}", source="other", **DURABLE) as other:
            assert contents(other) == contents(bus) == ["before"]
            bus.page().add("observation", "after")
            kill(engine_of(directory))
            assert contents(bus) == ["after", "before"]


async def test_an_open_async_bus_does_not_restart_a_stopped_engine(directory: Path) -> None:
    async with AsyncBus.connect(f"embedded:{directory}", source="tester", **DURABLE) as bus:
        await bus.page().add("observation", "before")
        assert stop(directory)
        for operation in (bus.page().list, bus.position):
            with pytest.raises(EngineUnreachable, match="was stopped"):
                await operation()
        with pytest.raises(EngineUnreachable, match="was stopped"):
            await bus.page().add("observation", "x")
        assert find_running(directory) is None


def test_an_engine_stopped_after_a_crash_is_not_restarted(directory: Path) -> None:
    with Bus.connect(f"embedded:{directory}", source="tester", **DURABLE) as bus:
        kill(engine_of(directory))
        stop(directory)
        with pytest.raises(EngineUnreachable, match="was stopped"):
            bus.position()


def test_a_removed_directory_is_not_recreated(directory: Path) -> None:
    with Bus.connect(f"embedded:{directory}", source="tester", **DURABLE) as bus:
        kill(engine_of(directory))
        shutil.rmtree(directory)
        with pytest.raises(EngineUnreachable):
            bus.page().add("observation", "x")
        assert not directory.exists()


def test_a_daemon_waits_for_a_stopped_engine(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []
    runs: list[Bus] = []

    def pause(attempt: int) -> float:
        pauses.append(attempt)
        if len(pauses) == 5:
            assert find_running(directory) is None
            Bus.connect(f"embedded:{directory}").close()
        assert len(pauses) < 100
        return 0.01

    def work(bus: Bus, _: threading.Event) -> None:
        runs.append(bus)
        if len(runs) == 1:
            stop(directory)
            bus.position()

    monkeypatch.setattr(runtime, "pause", pause)
    runtime.serve(lambda: Bus.connect(f"embedded:{directory}", source="daemon"), work)
    assert (len(runs), pauses[:5]) == (2, [1, 2, 3, 4, 5])
