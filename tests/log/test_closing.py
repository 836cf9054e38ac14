"""Closing a bus ends the waits of its threads and tasks at once, even while the engine hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.engine.embedded.server import find_running
from scratchbus.errors import BusClosed
from tests.log.engine_processes import client
from tests.waiting import eventually

pytestmark = [
    pytest.mark.alone,
    pytest.mark.real,
    pytest.mark.parametrize("shards", [1, 3]),
    pytest.mark.parametrize("hangs", [False, True]),
]

AT_ONCE = 2.0
"""Seconds allowed for what takes milliseconds on an idle machine; a wait that is not ended takes five."""


@contextmanager
def hanging(directory: Path, hangs: bool) -> Iterator[None]:
    """Suspend the process of the engine, if `hangs`."""
    running = find_running(directory)
    assert running is not None
    if hangs:
        os.kill(running.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(running.pid, signal.SIGCONT)


def blocked(directory: Path) -> int:
    """Return how many connections are blocked in a command."""
    running = find_running(directory)
    assert running is not None
    with client(running) as redis:
        return sum("b" in connection["flags"] for connection in redis.client_list())


def test_closing_ends_the_waits_of_threads(
    directory: Path, shards: int, hangs: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(threading.enumerate())
    bus = Bus.connect(f"embedded:{directory}", source="tester", shards=shards)
    ended: dict[str, type[Exception] | None] = {}

    def follow(name: str, iterator: Iterable[object]) -> None:
        try:
            for _ in iterator:
                pass
            ended[name] = None
        except Exception as problem:  # compared below
            ended[name] = type(problem)

    view, ends = bus.view().__enter__(), dict(enumerate(bus.position().shards))
    waiting: dict[str, Iterable[Any]] = {
        "events": bus.events(follow=True),
        "changes": view.changes(),
        "waiting": iter(lambda: bus.wait_for_events(ends, 60), True),
    }
    if not hangs:  # these also wait for replies, which end with the reply or a timeout
        waiting |= {"deliveries": bus.subscribe("router"), "jobs": bus.work("executors")}
    for one in waiting.items():
        threading.Thread(target=follow, args=one, daemon=True).start()
    wanted = 3 if shards == 1 or hangs else shards + 2
    eventually(lambda: blocked(directory) == wanted and not bus._engine._busy)
    with hanging(directory, hangs):
        bus.close()
        eventually(lambda: set(threading.enumerate()) <= before, within=AT_ONCE)
    assert ended == dict.fromkeys(waiting, BusClosed) | {"changes": None}
    eventually(lambda: blocked(directory) == 0)
    assert capsys.readouterr().err == ""


async def test_closing_ends_the_waits_of_tasks(
    directory: Path, shards: int, hangs: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = asyncio.all_tasks()
    bus = await AsyncBus.connect(f"embedded:{directory}", source="tester", shards=shards)

    async def follow(iterator: AsyncIterable[object]) -> None:
        async for _ in iterator:
            pass

    async def wait() -> None:
        while not await bus.wait_for_events(ends, 60):
            pass

    view, ends = await bus.view().__aenter__(), dict(enumerate((await bus.position()).shards))
    waiting = [asyncio.create_task(task) for task in (follow(view.changes()), follow(bus.events(follow=True)), wait())]
    if not hangs:
        waiting += [asyncio.create_task(follow(bus.subscribe("router"))), asyncio.create_task(follow(bus.work("w")))]
    links = bus._engine._shared
    await asyncio.to_thread(
        eventually, lambda: blocked(directory) == 1 + shards and not any(each._sent for each in links.values())
    )
    with hanging(directory, hangs):
        async with asyncio.timeout(AT_ONCE):
            await bus.close()
            ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [type(None)] + [BusClosed] * (len(waiting) - 1)
    assert asyncio.all_tasks() == before
    assert capsys.readouterr().err == ""
