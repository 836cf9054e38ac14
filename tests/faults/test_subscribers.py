"""Consumers that are killed or paused, and engines that fail under them: no event skipped, no cursor rewound."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from redis import Redis

from scratchbus import Bus
from scratchbus.errors import EngineError
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.readmodel.status import read_subscriptions
from scratchbus.subscriptions.consumer import NAP
from tests.clock import ProcessClock
from tests.faults import consumers
from tests.faults.processes import Crew, kill
from tests.faults.servers import DURABLE, Server
from tests.waiting import eventually

pytestmark = pytest.mark.real

TAKEOVER = 5.0  # seconds until another consumer continues, on a machine that is not busy


def words(file: Path, verb: str) -> list[int]:
    """Return the numbers of the lines of a consumer with this verb."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [int(line.partition(" ")[2]) for line in lines if line.startswith(f"{verb} ")]


def fill(bus: Bus, first: int, count: int) -> None:
    for number in range(first, first + count):
        bus.page().add("observation", f"{number}")


def cursor(bus: Bus) -> str:
    return bus.converse(read_subscriptions(bus.core))[0].cursor


def is_in_order(seen: list[int]) -> bool:
    """Return whether no number was skipped; redelivered ones may follow again."""
    return seen[0] == 0 and all(after <= before + 1 for before, after in pairwise(seen))


@pytest.mark.slow
@pytest.mark.alone
def test_a_standby_takes_over_from_a_killed_consumer_in_seconds(
    shared_server: Server, crew: Crew, tmp_path: Path, bus_name: str
):
    said = [tmp_path / "one", tmp_path / "two"]
    with Bus.connect(shared_server.tcp_url, bus=bus_name, source="test") as bus:
        fill(bus, 0, 50)
        active = crew.start(consumers.consume, shared_server.url, bus_name, "router", said[0], {})
        eventually(lambda: len(words(said[0], "acked")) == 50)
        eventually(lambda: cursor(bus) == str(bus.position()))
        crew.start(consumers.consume, shared_server.url, bus_name, "router", said[1], {})
        fill(bus, 50, 50)
        eventually(lambda: len(words(said[0], "acked")) >= 60)
        kill(active)
        fill(bus, 100, 50)
        eventually(lambda: words(said[1], "handled"), within=2 * TAKEOVER)
        assert bus.settings.seconds("subscription_lease") + NAP < TAKEOVER
        eventually(lambda: words(said[1], "acked")[-1:] == [149])
    first, second = words(said[0], "handled"), words(said[1], "handled")
    assert is_in_order(first + second)
    assert second[0] >= 50, "events before the cursor are not delivered again"


@pytest.mark.slow
def test_a_paused_consumer_neither_acks_nor_rewinds(shared_server: Server, crew: Crew, tmp_path: Path, bus_name: str):
    asleep, awake, release = tmp_path / "asleep", tmp_path / "awake", tmp_path / "release"
    with Bus.connect(shared_server.url, bus=bus_name, source="test") as bus:
        fill(bus, 0, 3)
        paused = crew.start(consumers.consume_late, shared_server.url, bus_name, "router", asleep, release)
        eventually(lambda: words(asleep, "handled") == [0])
        assert paused.pid is not None
        os.kill(paused.pid, signal.SIGSTOP)
        other = crew.start(consumers.consume, shared_server.url, bus_name, "router", awake, {})
        eventually(lambda: words(awake, "acked") == [0, 1, 2])
        eventually(lambda: cursor(bus) == str(bus.position()))
        release.touch()
        os.kill(paused.pid, signal.SIGCONT)
        paused.join(30)
        assert words(asleep, "lost") == [0]
        assert words(asleep, "acked") == []
        assert cursor(bus) == str(bus.position())
        fill(bus, 3, 1)
        eventually(lambda: words(awake, "acked") == [0, 1, 2, 3])
        assert other.is_alive()


def test_a_consumer_continues_after_its_engine_restarts(new_server: Callable[..., Server], crew: Crew, tmp_path: Path):
    server, said = new_server(**DURABLE), tmp_path / "said"
    with Bus.connect(server.url, bus="b", source="test") as bus:
        fill(bus, 0, 20)
        crew.start(consumers.consume, server.url, "b", "router", said, {})
        eventually(lambda: len(words(said, "acked")) >= 5)
        for round in range(2):
            server.kill()
            server.start()
            _retry(lambda: fill(bus, 20 * (round + 1), 20))  # noqa: B023  # called at once
            eventually(lambda: words(said, "acked")[-1:] == [20 * round + 39])  # noqa: B023
        eventually(lambda: cursor(bus) == str(bus.position()))
    assert is_in_order(words(said, "handled"))


def _retry(act: Callable[[], None]) -> None:
    eventually(lambda: _succeeds(act))


def _succeeds(act: Callable[[], None]) -> bool:
    try:
        act()
        return True
    except EngineError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    ],
    ids=["full", "read-only"],
)
def test_a_consumer_waits_while_the_engine_refuses_writes(
    begin: tuple[str, ...],
    end: tuple[str, ...],
    new_server: Callable[..., Server],
    process_clock: ProcessClock,
):
    server, seen, stop = new_server(), [], threading.Event()
    with Bus.connect(server.url, bus="b", source="test", subscription_lease="1m") as bus, server.client() as client:
        fill(bus, 0, 5)

        def handle(event):
            seen.append(event.content)
            if len(seen) == 2:
                client.execute_command(*begin)  # later events are handled but cannot be acked

        with bus.subscribe("router") as deliveries:
            thread = threading.Thread(target=deliveries.run, args=(handle, stop))
            thread.start()
            eventually(lambda: len(seen) == 5)
            process_clock.advance("2m")
            eventually(lambda: not deliveries.is_active)
            client.execute_command(*end)
            eventually(lambda: cursor(bus) == str(bus.position()))
            fill(bus, 5, 1)
            eventually(lambda: len(seen) == 6)
            stop.set()
            thread.join()
        assert seen == ["0", "1", "2", "3", "4", "5"]


def end_lease_of(killed: list[int], client: Redis, subscription: str) -> None:
    """End the lease of a process that was killed, as its time would."""
    holder = client.hget(subscription, "holder") or b""
    if holder.decode().rpartition(":")[2] in map(str, killed):
        client.hset(subscription, "until", 0)


@pytest.mark.slow
def test_killing_consumers_skips_no_event(new_server: Callable[..., Server], crew: Crew, tmp_path: Path):
    server, published = new_server(**DURABLE), tmp_path / "published"
    said = [tmp_path / f"said-{number}" for number in range(6)]
    long = {"subscription_lease": "10m"}  # longer than any consumer stalls by itself, so that none loses its lease
    killed: list[int] = []

    def numbers(verb: str) -> list[int]:
        """Return the numbers of all consumers with this verb, and end the lease of a killed one."""
        with server.client() as client:
            end_lease_of(killed, client, ShardKeys("b", 0).subscription("router"))
        return [number for file in said for number in words(file, verb)]

    crew.start(consumers.publish, server.url, "b", 600, published)
    running = [crew.start(consumers.consume, server.url, "b", "router", said[number], long) for number in range(2)]
    for number, victim in ((2, 0), (3, 1), (4, 0), (5, 1)):
        before = len(numbers("acked"))
        eventually(lambda: len(numbers("acked")) > before + 20)  # noqa: B023
        kill(running[victim])
        killed.append(running[victim].pid or 0)
        running[victim] = crew.start(consumers.consume, server.url, "b", "router", said[number], long)
    eventually(lambda: published.read_text().splitlines()[-1:] == ["599"])
    eventually(lambda: set(numbers("handled")) == set(range(600)))
    for file in said:
        handled = words(file, "handled")
        assert handled == sorted(set(handled)), "a consumer gets each event once, in order"
