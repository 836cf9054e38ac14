"""An archive to look at: that of a bus of the test's own, with several segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.archive.archiver import archive_bus


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def bus(directory: Path) -> Iterator[Bus]:
    """A bus whose log has 60 events, of which 50 are archived in five segments."""
    with Bus.connect(
        f"memory://{token_hex(6)}", bus="kept", source="tester", archive_url=str(directory), archive_segment=10,
        retain="1ms", retain_events=10,
    ) as bus:  # fmt: skip
        for number in range(30):
            items = [NewObservation(type="observation", content=f"{number} {each}", tags=["t"]) for each in "ab"]
            bus.page(f"page-{number % 3}").add_many(items)
        yield bus


@pytest.fixture
def archived(bus: Bus) -> Bus:
    archive_bus(bus)
    return bus
