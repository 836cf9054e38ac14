"""The queries that the guide for auditors shows, run on what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import duckdb
import pytest

from scratchbus import Bus
from scratchbus.exporting import line_of
from tests.docs.markdown import ROOT, blocks

QUERIES = [block.text for block in blocks((ROOT / "docs" / "audit.md").read_text("utf-8"), "sql")]


@pytest.fixture
def bus() -> Iterator[Bus]:
    """A bus on which two have said something."""
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


def test_duckdb_answers_who_said_how_much(exported: Path):
    found = duckdb.sql(QUERIES[0].replace("all.jsonl", str(exported))).fetchall()
    assert [row[:3] for row in found] == [("ci", "observation", 3), ("ci", "risk_alert", 1)]


def test_duckdb_answers_what_took_how_long(exported: Path):
    ((type, seconds, count),) = duckdb.sql(QUERIES[1].replace("all.jsonl", str(exported))).fetchall()
    assert (type, count) == ("risk_alert", 1)
    assert 0 <= seconds < 60
