"""`workspace`: its output, and its end on an interrupt."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from scratchbus.daemon import INTERRUPTED
from tests.edges.conftest import Cli
from tests.waiting import eventually

pytestmark = pytest.mark.real


def test_sync_reports_the_written_files(cli: Cli, tmp_path: Path):
    session = cli.page.replace(":", "-")
    (tmp_path / "TODO.md").write_text("- [ ] one\n")
    done = cli.json("workspace", "sync", str(tmp_path), "--session", session).document
    assert done == {"directory": str(tmp_path), "session": session, "wrote": ["todo", "NOTES.md"]}
    again = cli("workspace", "sync", str(tmp_path), "--session", session)
    assert "nothing to do" in again.out
    assert "[ ] 1 one" in cli("todo", "read", "--session", session).out


def test_each_directory_has_its_own_session(cli: Cli, tmp_path: Path):
    sessions = set()
    for directory in (tmp_path / "one" / "Übung!", tmp_path / "other" / "Übung!", tmp_path / "!"):
        directory.mkdir(parents=True)
        (directory / "TODO.md").write_text(f"- [ ] {directory.parent.name}\n")
        session = cli.json("workspace", "sync", str(directory)).document["session"]
        assert f"[ ] 1 {directory.parent.name}" in cli("todo", "read", "--session", session).out
        assert session == cli.json("workspace", "sync", str(directory)).document["session"]
        sessions.add(session)
    assert len(sessions) == 3


def test_a_file_that_is_not_utf8_is_refused(cli: Cli, tmp_path: Path):
    (tmp_path / "TODO.md").write_bytes(b"\xff")
    done = cli("workspace", "sync", str(tmp_path), "--session", "bad")
    assert done.code == 5
    assert "save it as UTF-8" in done.err


def test_sync_watch_runs_until_it_is_interrupted(cli: Cli, tmp_path: Path):
    session = cli.page.replace(":", "-")
    (tmp_path / "TODO.md").write_text("- [ ] one\n")
    with cli.start("workspace", "sync", "--watch", str(tmp_path), "--session", session) as running:
        running.wait_for("wrote todo, NOTES.md")
        assert cli("todo", "set", "--session", session, "1", "--status", "completed", "--source", "me").code == 0
        eventually(lambda: (tmp_path / "TODO.md").read_text() == "- [x] one\n")
        assert running.interrupt(signal.SIGINT) == INTERRUPTED


def test_rules_are_listed(cli: Cli, tmp_path: Path):
    (tmp_path / "CLAUDE.md").write_text("Use double quotes.")
    found = cli.json("workspace", "rules", str(tmp_path)).document
    assert (found["path"], found["text"], found["problem"]) == ("CLAUDE.md", "Use double quotes.", "")
