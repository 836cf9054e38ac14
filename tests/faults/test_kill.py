"""Repeated `kill -9` of projectors and the engine under load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from scratchbus import Bus
from tests.faults import workers
from tests.faults.checker import Acknowledged, check
from tests.faults.processes import Crew, kill
from tests.faults.servers import DURABLE, Server
from tests.inspection import project
from tests.waiting import eventually

pytestmark = pytest.mark.real

WRITERS = 3


def read_acknowledged(files: list[Path]) -> Acknowledged:
    """Return the acknowledged writes that writers have noted."""
    lines = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    return Acknowledged([event_id for event_id, _ in lines if event_id], [mark for _, mark in lines])


def count_lines(files: list[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files if file.exists())


def await_lines(files: list[Path], count: int) -> None:
    eventually(lambda: count_lines(files) >= count)


def load_and_kill(server: Server, crew: Crew, directory: Path, random: Random, engines: int, projectors: int) -> None:
    """Kill the engine and two projectors this many times while writers write; then check everything."""
    stop, said = directory / "stop", [directory / f"said-{number}" for number in range(WRITERS)]
    for number, file in enumerate(said):
        crew.start(workers.write, server.url, "load", f"writer-{number}", stop, file)
    running = [crew.start(workers.project, server.url, "load") for _ in range(2)]
    victims = ["engine"] * engines + ["projector"] * projectors
    random.shuffle(victims)
    for victim in victims:
        await_lines(said, count_lines(said) + random.randint(1, 40))
        if victim == "engine":
            server.kill()
            server.start()
        else:
            kill(running.pop(random.randrange(2)))
            running.append(crew.start(workers.project, server.url, "load"))
    stop.touch()
    crew.join(but=running)
    for projector in running:
        kill(projector)
    with Bus.connect(server.url, bus="load") as bus:
        assert check(bus, read_acknowledged(said)) == []
        project(bus)
        assert check(bus, read_acknowledged(said)) == []


def test_killing_processes_loses_no_acknowledged_write(
    each_binary: Path, new_server: Callable[..., Server], crew: Crew, tmp_path: Path
) -> None:
    load_and_kill(new_server(each_binary, **DURABLE), crew, tmp_path, Random(1), engines=3, projectors=6)


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(4))
def test_killing_for_minutes_loses_no_acknowledged_write(
    each_binary: Path, new_server: Callable[..., Server], crew: Crew, tmp_path: Path, seed: int
) -> None:
    load_and_kill(new_server(each_binary, **DURABLE), crew, tmp_path, Random(seed), engines=40, projectors=80)
