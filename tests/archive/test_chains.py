"""Reading the chains of several subjects backwards in the archive at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus
from scratchbus.archive.archiver import archive_of
from scratchbus.domain.position import Position
from scratchbus.eventlog.below_floor import read_floor
from tests.archive.conftest import BLOCK
from tests.inspection import all_events, archive, forget, log_length

SUBJECTS, CHANGES = 4, 5


def test_chains_of_many_subjects_are_read_together(
    embedded_url: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scratchbus.archive.blocks.BLOCK_BYTES", BLOCK)
    settings: dict[str, Any] = {
        "archive_url": str(directory),
        "archive_segment": 7,
        "retain": "1ms",
        "retain_events": 1,
    }
    with Bus.connect(embedded_url, bus="chains", source="tester", **settings) as bus:
        try:
            page = bus.page()
            ids = [page.add("observation", f"{number}").id for number in range(SUBJECTS)]
            for change in range(CHANGES):
                for id in ids:
                    page.update(id, content=f"{change}")
            chains = [[each.position for each in reversed(all_events(bus)) if each.subject == id] for id in ids]
            page.add("observation", "stays in the log")
            archive(bus)
            assert log_length(bus) == 1
            floor = bus.converse(read_floor(bus.core.log, 0))
            ends, walked = [chain[0] for chain in reversed(chains)], [list[Position]() for _ in ids]
            for _ in range(1 + CHANGES // 2):
                found = archive_of(bus.core).back(0, floor.origin, ends, 2)
                for positions, (entries, _) in zip(walked, found, strict=True):
                    assert len(entries) == 2
                    positions += [Position.parse(entry[0].decode()) for entry in entries]
                ends = [Position.parse(next_id) for _, next_id in found if next_id]
            assert ends == []
            assert walked == chains[::-1]
        finally:
            forget(bus)
