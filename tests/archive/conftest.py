"""A bus and its archive, with several segments of several blocks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.archive.archiver import archive_bus
from tests.inspection import forget
from tests.waiting import eventually

BLOCK = 1_000
"""Bytes of lines in a block: two or three events."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def bus(embedded_url: str, directory: Path) -> Iterator[Bus]:
    """A bus whose log has 60 events, of which 50 are to be archived in five segments."""
    with _filled(embedded_url, directory) as bus:
        yield bus


@pytest.fixture
def archived(bus: Bus) -> Bus:
    """A bus that is archived into the directory."""
    archive_bus(bus)
    return bus


@pytest.fixture
def archive(_written_once: Path, directory: Path) -> Path:
    """A directory with the archive of such a bus; the bus itself is gone."""
    return shutil.copytree(_written_once, directory)


@pytest.fixture(scope="session")
def _written_once(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archived") / "archive"
    with _filled(embedded_url, directory) as bus:
        archive_bus(bus)
    return directory


@contextmanager
def _filled(url: str, directory: Path) -> Iterator[Bus]:
    with (
        pytest.MonkeyPatch.context() as patch,
        Bus.connect(
            url, bus="kept", source="tester", archive_url=str(directory), archive_segment=10,
            retain="1ms", retain_events=10,
        ) as bus,
    ):  # fmt: skip
        patch.setattr("scratchbus.archive.blocks.BLOCK_BYTES", BLOCK)
        try:
            for number in range(30):
                items = [NewObservation(type="observation", content=f"{number} {each}", tags=["t"]) for each in "ab"]
                last = bus.page(f"page-{number % 3}").add_many(items)[-1]
            eventually(lambda: datetime.now(UTC) - last.created_at > timedelta(milliseconds=2))
            yield bus
        finally:
            forget(bus)
