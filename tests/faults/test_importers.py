"""`kill -9` of an import between any two writes: none of it can be read, and importing again completes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scratchbus import Bus
from tests.contracts.test_export import export
from tests.contracts.test_verify import live
from tests.faults import importers
from tests.faults.processes import Crew
from tests.faults.servers import Server
from tests.inspection import assert_sound, forget, send

pytestmark = pytest.mark.real


def events_by_shard(bus: Bus) -> list[int]:
    return [place.seq for place in bus.position().shards]


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
def test_a_killed_import_leaves_nothing_or_can_be_completed(
    shared_server: Server, bus_name: str, crew: Crew, tmp_path: Path, shards: int
) -> None:
    file, steps, step = tmp_path / "all.jsonl", tmp_path / "steps", -1
    with Bus.connect(shared_server.url, bus=bus_name, shards=shards, source="tester") as bus:
        live(bus)
        lines, whole = export(bus), events_by_shard(bus)
    file.write_text("\n".join(lines))
    some_were_left = False
    while not steps.exists():
        step += 1
        name = f"{bus_name}-{step}"
        importer = crew.start(importers.import_and_die, shared_server.url, name, shards, file, step, steps)
        importer.join()
        with Bus.connect(shared_server.url, bus=name, shards=shards, source="tester") as copy:
            found = events_by_shard(copy)
            assert all(count in (0, wanted) for count, wanted in zip(found, whole, strict=True)), f"step {step}"
            if shards == 1 and not any(found):
                assert list(copy.events()) == [], f"step {step}"
                assert copy.page().list() == [], f"step {step}"
            kinds = {finding.kind for finding in copy.verify().findings}
            some_were_left |= kinds == {"import"}
            assert kinds <= {"import"}, f"step {step}"
            assert copy.import_events(lines) == len(lines), f"step {step}"
            assert copy.verify().findings == [], f"step {step}"
            assert export(copy) == lines, f"step {step}"
            assert_sound(copy)
            assert send(copy, "KEYS", f"{{{name}:*}}:import*") == [], f"step {step}"
            forget(copy)
    taken = steps.read_text().split()
    assert len(taken) == step - 1, "one import was killed after each step"
    assert set(taken) == {"take", "part", "switch"}
    assert taken.count("part") >= 3
    assert taken.count("switch") == taken.count("take") == sum(map(bool, whole)) == (1 if shards == 1 else 2)
    assert some_were_left


def test_leftovers_of_a_killed_import_do_not_affect_the_live_bus(
    shared_server: Server, bus_name: str, crew: Crew, tmp_path: Path
) -> None:
    file = tmp_path / "all.jsonl"
    with Bus.connect(shared_server.url, bus=bus_name, source="tester") as bus:
        live(bus)
        file.write_text("\n".join(export(bus)))
    name = f"{bus_name}-copy"
    crew.start(importers.import_and_die, shared_server.url, name, 1, file, 3, tmp_path / "steps").join()
    with Bus.connect(shared_server.url, bus=name, source="tester") as copy:
        added = copy.page().add("observation", "own")
        assert [one.id for one in copy.page().list()] == [added.id]
        assert {finding.kind for finding in copy.verify().findings} == {"import"}
