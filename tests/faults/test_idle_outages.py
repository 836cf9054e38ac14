"""Idle workers and consumers whose engine goes away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from structlog.testing import capture_logs

from scratchbus import Bus
from scratchbus.subscriptions.consumer import Consumer
from scratchbus.work.agenda import Agenda
from tests.faults.servers import DURABLE, Server
from tests.waiting import eventually

pytestmark = [pytest.mark.real, pytest.mark.slow]

TRIES = 6


def work(bus: Bus, stop: threading.Event) -> None:
    with bus.work("w", pages=["main"]) as jobs:  # of one shard: its only worker reads the log itself
        jobs.run(lambda job: job.resolve(), stop)


def consume(bus: Bus, stop: threading.Event) -> None:
    with bus.subscribe("s") as deliveries:
        deliveries.run(lambda delivery: None, stop)


def wait_for_reads(server: Server) -> None:
    """Return once a client waits for events that has waited before and got none."""
    with server.client() as client:
        started = reads(client)
        eventually(lambda: reads(client) >= started + 2 and client.info("clients")["blocked_clients"])


def reads(client: Redis) -> int:
    """How many reads of events were sent to this engine since it started; they are all that waits there."""
    return int(client.info("commandstats").get("cmdstat_xread", {}).get("calls", 0))


@pytest.mark.parametrize(("kind", "run"), [(Agenda, work), (Consumer, consume)], ids=["worker", "consumer"])
def test_each_outage_is_logged_once(
    new_server: Callable[..., Server],
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    run: Callable[[Bus, threading.Event], None],
) -> None:
    server, stop, pauses = new_server(**DURABLE), threading.Event(), list[float]()
    pause_after = kind.pause_after

    def record_pause(self: Any, problem: Any) -> float:
        pauses.append(pause_after(self, problem))
        return pauses[-1]

    monkeypatch.setattr(kind, "pause_after", record_pause)
    with Bus.connect(server.url, source="test", subscription_lease="1m") as bus, capture_logs() as logs:
        thread = threading.Thread(target=run, args=(bus, stop))
        thread.start()
        try:
            for outage in (1, 2):
                wait_for_reads(server)
                pauses.clear()
                server.kill()
                eventually(lambda: len(pauses) >= TRIES)
                assert pauses[TRIES - 1] > pauses[0]
                assert [line["event"] for line in logs].count("waiting for the engine") == outage
                server.start()
        finally:
            stop.set()
            thread.join()
