"""The examples of the documents run and produce the expected bus."""

from __future__ import annotations

import os
import re
import subprocess
from secrets import token_hex

import pytest

from scratchbus import Bus
from tests import launcher
from tests.docs.markdown import ROOT
from tests.waiting import PATIENCE


@pytest.mark.slow
def test_the_agent_run_example_works(embedded_url: str):
    name = f"test-{token_hex(6)}"
    done = subprocess.run(
        launcher.command(ROOT / "docs" / "examples" / "agent_run.py", embedded_url),
        env={**os.environ, "SCRATCHBUS_BUS": name, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = dict(re.findall(r"^=== (.*)\n((?:(?!===).*\n)*)", done.stdout, re.M))
    begun, ended = (shown[f"the context of analyst at the {when}"] for when in ("beginning", "end"))
    assert "[>] 1. Survey all sheets (in_progress)" in begun
    assert "Dates in sheet 1 are YYYY-MM-DD" in ended
    assert "(in_progress)" not in ended
    doubting = shown["the context of reviewer as it finds something to doubt"]
    assert "risk_alert from analyst" in doubting
    compacted = shown["the conversation of analyst after compaction"]
    assert "You are analyst" in compacted
    assert "All six sheets are surveyed." in compacted
    assert "The reviewer wants proof that July is doubled" in compacted
    assert "[>] 2. Fix Q3 (in_progress)" in compacted
    assert "Check July in EMEA first" in shown["what the analyst will see when its next run begins"]
    with Bus.connect(embedded_url, bus=name) as bus:
        sheets = bus.page("sheets")
        assert {each.status for each in sheets.list()} == {"resolved"}
        (july,) = sheets.list(text="July")
        assert (july.confidence, july.source) == (0.99, "analyst")
        (child,) = bus.session("survey").children
        assert bus.notepad(child).read() == "All 17 rows compared; nothing else to do."
        (report,) = sheets.list(tags="session_result")
        assert (report.source, report.id) == ("helper", july.metadata["proof"])
        assert [seen.session for seen in sheets.exposure(july.id).seen][:1] == ["survey"]
