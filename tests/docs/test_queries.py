"""The queries of the guide for auditors, run by DuckDB on an export and on an archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import duckdb
import pytest

from scratchbus import Bus
from scratchbus.archive.export import line_of
from tests.docs.markdown import ROOT, blocks
from tests.inspection import archive

QUERIES = [block.text for block in blocks((ROOT / "docs" / "audit.md").read_text("utf-8"), "sql")]


@pytest.fixture
def bus() -> Iterator[Bus]:
    """A bus with observations of two sources."""
    with Bus.connect(f"memory://{token_hex(4)}", source="ci") as bus:
        page = bus.page()
        for content in ("red", "green", "«ünïcode», and a comma"):
            page.add("observation", content)
        page.resolve(page.add("risk_alert", "fraud", source="fraud_detector").id)
        page.erase(page.add("observation", "private").id, reason="asked for")
        yield bus


@pytest.fixture
def exported(bus: Bus, tmp_path: Path) -> Path:
    file = tmp_path / "all.jsonl"
    file.write_text("".join(f"{line_of(event)}\n" for event in bus.events()), "utf-8")
    return file


def test_duckdb_counts_observations_by_source(exported: Path):
    found = duckdb.sql(QUERIES[0].replace("all.jsonl", str(exported))).fetchall()
    assert [row[:3] for row in found] == [("ci", "observation", 3), ("ci", "risk_alert", 1)]


def test_duckdb_queries_an_archive(tmp_path: Path):
    url, directory = f"memory://{token_hex(4)}", str(tmp_path)
    with Bus.connect(url, source="ci", archive_url=directory, retain="1ms", retain_events=1, archive_segment=3) as bus:
        page = bus.page()
        for number in range(7):
            page.add("observation", f"{number}")
        page.erase(page.list(text="3")[0].id, reason="asked for")
        page.resolve(page.add("risk_alert", "fraud", source="fraud_detector").id)
        page.add("observation", "last")
        bus.rebuild()
        archive(bus)
    files = str(tmp_path / "**" / "*.jsonl.zst")
    found = duckdb.sql(QUERIES[0].replace("all.jsonl", files)).fetchall()
    assert [row[:3] for row in found] == [("ci", "observation", 6), ("ci", "risk_alert", 1)]
    ((type, _, count),) = duckdb.sql(QUERIES[1].replace("all.jsonl", files)).fetchall()
    assert (type, count) == ("risk_alert", 1)


def test_duckdb_measures_the_time_to_resolution(exported: Path):
    ((type, seconds, count),) = duckdb.sql(QUERIES[1].replace("all.jsonl", str(exported))).fetchall()
    assert (type, count) == ("risk_alert", 1)
    assert 0 <= seconds < 60
