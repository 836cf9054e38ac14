"""Rebuilds under load, some of them killed, while other processes write, project, expire and read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.readmodel.rebuild import Pace
from tests.faults import rebuilders, workers
from tests.faults.checker import check
from tests.faults.processes import Crew, kill
from tests.faults.servers import DURABLE, Server
from tests.faults.test_kill import await_lines, count_lines, read_acknowledged
from tests.inspection import project
from tests.waiting import eventually

pytestmark = pytest.mark.real

STILL = 40


@pytest.mark.slow
def test_readers_see_no_hole_while_rebuilds_run_and_are_killed(
    new_server: Callable[..., Server], crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "seconds", lambda *_: 0.0)  # pauses are tested elsewhere
    server, stop = new_server(**DURABLE), tmp_path / "stop"
    said, seen = [tmp_path / f"said-{number}" for number in range(1)], tmp_path / "seen"
    with Bus.connect(server.url, bus="load", source="test") as bus:
        page = bus.page("still")
        added = page.add_many(
            [NewObservation(type="observation", content=f"{n}", tags=["t"], ttl="1d") for n in range(STILL - 1)]
        )
        page.link(page.add("observation", "rests", tags=["t"], evidence=[added[0].id]).id, "goal")
        for number, file in enumerate(said):
            crew.start(workers.write, server.url, "load", f"writer-{number}", stop, file)
        daemons = [
            crew.start(workers.project, server.url, "load"),
            crew.start(workers.expire, server.url, "load", "50ms"),
        ]
        crew.start(rebuilders.read, server.url, "load", STILL, stop, seen)
        await_lines(said, 80)
        for number in range(2):
            file = tmp_path / f"rebuild-{number}"
            rebuilder = crew.start(rebuilders.rebuild, server.url, "load", file)
            eventually(file.exists)
            kill(rebuilder)
        for _ in range(2):
            before = count_lines(said)
            bus.rebuild()
            await_lines([seen], count_lines([seen]) + 2)
            await_lines(said, before + 20)
        stop.touch()
        crew.join(but=daemons)
        for daemon in daemons:
            kill(daemon)
        project(bus)
        assert set(seen.read_text().splitlines()) == {"whole"}
        assert bus.converse(read_checkpoint(bus.core.log.keys(0))).build == 5
        assert check(bus, read_acknowledged(said)) == []
        with server.client() as client:
            assert {key.split(b":")[2] for key in client.scan_iter("{load:0}:p[0-9]*")} == {b"p5"}
