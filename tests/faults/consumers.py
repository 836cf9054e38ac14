"""Consumers of subscriptions as processes, each of which writes to a file what it handled."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, TextIO

from scratchbus import Bus, Delivery
from scratchbus.errors import LeaseLost


def consume(url: str, bus: str, name: str, said: Path, settings: dict[str, Any]) -> None:
    """Consume a subscription forever; write lines `handled <content>`, `acked <content>` and `lost <content>`."""
    with (
        said.open("a", buffering=1) as file,  # each line is written at once
        Bus.connect(url, bus=bus, source=said.name, **settings) as connected,
        connected.subscribe(name, kinds=["added"]) as deliveries,
    ):
        for delivery in deliveries:
            _handle(delivery, file)


def consume_late(url: str, bus: str, name: str, said: Path, release: Path) -> None:
    """Take one event, and ack it once the file `release` exists; then end."""
    with said.open("a", buffering=1) as file, Bus.connect(url, bus=bus, source=said.name) as connected:
        deliveries = connected.subscribe(name, kinds=["added"])
        _handle(next(deliveries), file, release)


def _handle(delivery: Delivery, file: TextIO, release: Path | None = None) -> None:
    event: Any = delivery.event
    file.write(f"handled {event.content}\n")
    while release is not None and not release.exists():
        time.sleep(0.01)
    try:
        delivery.ack()
        file.write(f"acked {event.content}\n")
    except LeaseLost:
        file.write(f"lost {event.content}\n")


def publish(url: str, bus: str, count: int, said: Path) -> None:
    """Publish a number of events; write a line for each acknowledged one."""
    with said.open("a", buffering=1) as file, Bus.connect(url, bus=bus, source="publisher") as connected:
        page = connected.page()
        for number in range(count):
            page.add("observation", f"{number}", event_id=f"event-{number}")
            file.write(f"{number}\n")
            time.sleep(0.002)
