"""`kill -9` of archivers between any two steps, and several at once: no event is lost or duplicated."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from scratchbus import Bus
from scratchbus.archive.archive_check import verify
from scratchbus.archive.stores import open_store
from scratchbus.domain.events import Added
from scratchbus.eventlog.below_floor import read_floor
from scratchbus.eventlog.compression import zstd
from tests.faults import archivers, workers
from tests.faults.processes import Crew, kill
from tests.faults.servers import DURABLE, Server
from tests.faults.test_kill import await_lines, read_acknowledged
from tests.inspection import assert_sound, log_length

pytestmark = pytest.mark.real

IN_A_ROW = 5
"""Archivers killed in a row on one archive."""


def problems(directory: Path) -> list[str]:
    return [f"{each.file}: {each.problem}" for log in verify(open_store(str(directory))) for each in log.problems]


def add_some(bus: Bus, said: list[str]) -> None:
    page = bus.page()
    for _ in range(4):
        said.append(f"{len(said)}")
        page.archive(page.add("observation", said[-1]).id)


def contents(bus: Bus) -> list[str]:
    return [event.content for event in bus.events(kinds="added") if isinstance(event, Added)]


def await_death(victim: BaseProcess) -> None:
    """Wait until a process has killed itself, or has finished before its step."""
    victim.join()
    assert victim.exitcode in (-signal.SIGKILL, 0)


@pytest.mark.slow
def test_an_archiver_killed_at_any_step_loses_and_repeats_nothing(
    shared_server: Server, bus_name: str, crew: Crew, tmp_path: Path
) -> None:
    steps, step = tmp_path / "steps", 0
    while not steps.exists():  # a new archive now and then, since each check verifies all of it
        name, directory, said = f"{bus_name}-{step}", tmp_path / f"archive-{step}", list[str]()
        with archivers.connect(shared_server.url, name, directory) as bus:
            add_some(bus, said)
            for _ in range(IN_A_ROW):
                step += 1
                add_some(bus, said)
                await_death(crew.start(archivers.archive_and_die, shared_server.url, name, directory, step, steps))
                assert contents(bus) == said, f"step {step}"
                assert [event.seq for event in bus.events()] == list(range(1, 2 * len(said) + 1)), f"step {step}"
                archivers.archive(shared_server.url, name, directory)
                assert problems(directory) == [], f"step {step}"
                assert log_length(bus) <= 4, f"step {step}"
                if steps.exists():
                    break
            assert contents(bus) == said
            assert_sound(bus)
    assert step > 20, "archiving has fewer steps than expected"


@pytest.mark.slow
def test_an_erasure_killed_at_any_step_is_completed_by_the_next_run(
    shared_server: Server, bus_name: str, crew: Crew, tmp_path: Path
) -> None:
    steps, step = tmp_path / "steps", 0
    while not steps.exists():
        name, directory, said = f"{bus_name}-{step}", tmp_path / f"archive-{step}", list[str]()
        with archivers.connect(shared_server.url, name, directory) as bus:
            add_some(bus, said)
            archivers.archive(shared_server.url, name, directory)
            for _ in range(IN_A_ROW):
                step += 1
                word = f"private-{step}-"
                id = bus.page().add("observation", word).id
                bus.page().archive(id)
                add_some(bus, said)
                archivers.archive(shared_server.url, name, directory)
                assert files_with(directory, word)
                await_death(crew.start(archivers.erase_and_die, shared_server.url, name, directory, id, step, steps))
                is_erased = bus.page().history(id)[-1].kind == "erased"
                if step % 2 or not is_erased:
                    archivers.erase(shared_server.url, name, directory, id)
                else:
                    archivers.archive(shared_server.url, name, directory)
                assert not files_with(directory, word), f"step {step}"
                assert problems(directory) == [], f"step {step}"
                assert contents(bus) == said, f"step {step}"
                if steps.exists():
                    break
            assert bus.verify().findings == []
    assert step > 12, "erasing has fewer steps than expected"


def files_with(directory: Path, word: str) -> list[str]:
    """Return the files of an archive that contain a word."""
    files = [file for file in directory.rglob("*.jsonl.zst") if word.encode() in zstd.decompress(file.read_bytes())]
    return [file.name for file in files]


@pytest.mark.slow
def test_concurrent_archivers_writers_and_readers_lose_nothing(
    new_server: Callable[..., Server], bus_name: str, crew: Crew, tmp_path: Path
) -> None:
    directory, stop = tmp_path / "archive", tmp_path / "stop"
    url, said = new_server(**DURABLE).url, [tmp_path / f"said-{number}" for number in range(2)]
    projector = crew.start(workers.project, url, bus_name)
    for number, file in enumerate(said):
        crew.start(workers.write, url, bus_name, f"writer-{number}", stop, file)
    await_lines(said, 1)
    for _ in range(2):
        crew.start(archivers.archive_repeatedly, url, bus_name, directory, stop)
    with archivers.connect(url, bus_name, directory) as bus:
        read, shards = 0, range(bus.core.log.shards)
        while min(bus.converse(read_floor(bus.core.log, shard)).position.seq for shard in shards) < 300:
            events = list(bus.events())
            for shard in shards:
                seqs = [event.seq for event in events if event.shard == shard]
                assert seqs == list(range(1, len(seqs) + 1))
            assert len(events) >= read
            read = len(events)
        stop.touch()
        crew.join(but=[projector])
        kill(projector)
        archivers.archive(url, bus_name, directory)
        assert problems(directory) == []
        assert_sound(bus)
        there = Counter(event.id for event in bus.events())
        assert {there[id] for id in read_acknowledged(said).event_ids} == {1}
