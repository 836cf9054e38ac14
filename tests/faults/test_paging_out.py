"""Paging out under load while its processes are killed: nothing is lost, and every read stays correct."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from scratchbus import Bus, NewObservation, Observation
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.index_tables import TableName, table_names
from scratchbus.eventlog.keys import PageKeys
from tests.faults import workers
from tests.faults.processes import Crew, kill
from tests.faults.servers import Server
from tests.inspection import assert_sound, documents, keys_of, paged_out, project, send
from tests.waiting import eventually

pytestmark = pytest.mark.real

ROUNDS, EACH, MIN_ENTRIES = 8, 25, 4


@pytest.fixture(params=["no archive", "an archive"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "archive" if request.param == "an archive" else None


@pytest.fixture
def bus(shared_server: Server, bus_name: str, archive: Path | None) -> Iterator[Bus]:
    with Bus.connect(shared_server.url, bus=bus_name, source="parent", shards=2, archive_url=archive) as bus:
        yield bus


def tables_of(bus: Bus) -> list[TableName]:
    keys = keys_of(bus)
    names = PageKeys(keys, "main", bus.converse(read_checkpoint(keys)).build)
    return table_names(send(bus, "HGETALL", names.tables))


def is_paged_out(bus: Bus) -> bool:
    """Return whether every event is folded and every document paged out."""
    return all(shard.lag == 0 for shard in bus.status().shards) and not documents(bus)


@pytest.mark.slow
def test_paging_out_survives_kills_at_any_step(
    shared_server: Server, bus: Bus, crew: Crew, archive: Path | None
) -> None:
    page, random, name = bus.page("main"), Random(7), bus.core.log.bus
    work = workers.page_out, shared_server.url, name, archive, MIN_ENTRIES
    expirers = [crew.start(*work) for _ in range(2)]
    projector = crew.start(workers.project, shared_server.url, name)
    expected: dict[str, Observation] = {}
    for _ in range(ROUNDS):
        added = page.add_many(
            [NewObservation(type="observation", content=f"{n}", tags=["t"], owner="o") for n in range(EACH)]
        )
        expected |= {one.id: page.archive(one.id) for one in added}
        old = random.choice(list(expected))
        expected[old] = page.link(old, f"goal-{len(expected)}")  # brings it back into the engine
        assert page.get(old) == expected[old]
        time.sleep(random.uniform(0, 0.05))  # so that each kill hits another step
        kill(expirers.pop(0))
        expirers.append(crew.start(*work))
        assert {one.id: one for one in page.list(limit=None)} == expected
    eventually(lambda: is_paged_out(bus))
    for one in page.add_many([NewObservation(type="observation", content="late", tags=["t"], owner="o")] * MIN_ENTRIES):
        expected[one.id] = page.archive(one.id)  # so that leftovers of the last killed process move too
    eventually(lambda: is_paged_out(bus) and (archive is None or tables_of(bus)))
    for process in (*expirers, projector):
        kill(process)
    assert {id for _, id in paged_out(bus)} == expected.keys()
    assert {one.id: one for one in page.list(status="archived", tags=["t"], owner="o", limit=None)} == expected
    assert archive is not None or not tables_of(bus)
    assert bus.verify().is_sound
    project(bus)
    assert_sound(bus)
