"""Notes, notepads, preferences and recall, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scratchbus import Bus
from scratchbus.daemon.exit_codes import CONFLICT, INVALID_INPUT, NOT_FOUND, USAGE
from tests.edges.conftest import Cli, Result
from tests.waiting import PATIENCE

pytestmark = pytest.mark.real
Command = Callable[..., Result]


@pytest.fixture
def note(cli: Cli) -> Command:
    """A `note` command of the test's own session."""
    return lambda *arguments: cli("note", *arguments, "--session", cli.page)


@pytest.fixture
def notepad(cli: Cli) -> Command:
    """A `notepad` command of the same session."""
    return lambda name, *arguments: cli("notepad", name, "--session", cli.page, *arguments)


def test_notes_are_added_searched_updated_and_deleted(note: Command):
    first = note("add", "Q3 is off", "--tag", "analysis", "--json").document
    assert set(first["note"]) == {
        "id", "content", "tags", "source", "version", "damaged", "created_at", "updated_at", "position",
    }  # fmt: skip
    assert first["metadata"] == {"note_id": first["note"]["id"], "total_notes": 1, "total_tags": 1}
    note("scratch", "rows 234 to 267")
    assert [each["content"] for each in note("list", "--json").documents] == ["rows 234 to 267", "Q3 is off"]
    assert note("search", "q3", "--tag", "ANALYSIS", "--json").document == first["note"]
    assert note("tags", "--json").document == {"analysis": 1}
    id = first["note"]["id"]
    assert note("update", id, "--content", "Q3 is right", "--no-tags").out == f"updated {id} Q3 is right\n"
    assert note("tags").err == "No note has a tag\n"
    assert note("delete", id, "--json").document["metadata"]["total_notes"] == 1
    assert [event["kind"] for event in note("history", id, "--json").documents] == [
        "note_added",
        "note_updated",
        "note_deleted",
    ]
    assert note("search", "Q3").err == "There are no such notes\n"


def test_notes_are_listed_on_a_line_each_without_control_chars(note: Command):
    note("add", "two\nlines\x1b[2J", "--tag", "a", "--tag", "b")
    (line,) = note("list").out.splitlines()
    assert line.endswith("a,b           two lines�[2J")
    assert note("tags").out.splitlines() == ["    1  a", "    1  b"]


def test_the_notepad_is_written_edited_and_read(cli: Cli, notepad: Command):
    assert notepad("read").err == "The notepad is empty\n"
    assert notepad("write", "# Plan\n").out == f"written to the notepad of {cli.page}\n"
    assert notepad("append", "--", "- [ ] survey").out == f"appended to the notepad of {cli.page}\n"
    notepad("update", "find_replace", "--find", "[ ]", "--replace", "[x]")
    assert notepad("read").out == "# Plan\n- [x] survey\n"
    assert notepad("read", "--json").document == {
        "session": cli.page,
        "content": "# Plan\n- [x] survey\n",
        "revision": 3,
    }
    assert notepad("write", "x", "--revision", "2").err.startswith("scratchbus: the notepad has changed since revision")
    events = notepad("history", "--json").documents
    assert [event["kind"] for event in events] == ["notepad_written", "notepad_edited", "notepad_edited"]
    assert notepad("read", "--at", events[0]["position"]).out == "# Plan\n"
    assert notepad("write", "").code == 0
    assert notepad("read", "--json").document["content"] == ""


def test_notepad_history_describes_each_edit(notepad: Command):
    notepad("write", "a")
    notepad("update", "find_replace", "--find", "a", "--replace", "b")
    last = notepad("history").out.splitlines()[-1]
    assert last.endswith("find replace: a → b")


def test_notepad_write_reads_standard_input(cli: Cli, notepad: Command):
    done = cli.process("notepad", "write", "-", "--session", cli.page, "--source", "me", given="two\nlines\n")
    assert done.code == 0
    assert notepad("read").out == "two\nlines\n"
    notepad("append", "three")
    assert notepad("read").out == "two\nlines\nthree\n"


def test_invalid_note_commands_have_their_exit_codes(cli: Cli, bus: Bus, note: Command, notepad: Command):
    assert note("add", "x" * 4001).code == INVALID_INPUT
    assert note("delete", "note_7").code == NOT_FOUND
    assert note("update", "note_7").code == INVALID_INPUT
    refused = notepad("update", "delete", "--content", "zebra")
    assert (refused.code, len(refused.err.splitlines())) == (INVALID_INPUT, 1)
    assert cli("note", "list").code == USAGE
    bus.end_session(cli.page)
    assert notepad("append", "late").code == CONFLICT


def test_notes_take_their_session_from_the_environment(cli: Cli, note: Command, monkeypatch: pytest.MonkeyPatch):
    note("add", "x")
    monkeypatch.setenv("SCRATCHBUS_SESSION", cli.page)
    assert len(cli("note", "list", "--json").documents) == 1


def test_preferences_are_remembered_edited_listed_and_forgotten(cli: Cli):
    def memory(name: str, *arguments: str) -> Result:
        return cli("memory", name, *arguments, "--scope", cli.page)

    assert memory("ls").err == f"{cli.page} has no preferences\n"
    first = memory("add", "quotes in JS", "always double", "--said-by", "Ada", "--json").document["preference"]
    assert (first["key"], first["text"], first["said_by"], first["version"]) == (
        "quotes in JS", "always double", "Ada", 1,
    )  # fmt: skip
    assert memory("edit", "Quote in JS", "single").out == "edited Quote in JS single\n"
    assert [each["text"] for each in memory("ls", "--json").documents] == ["single"]
    assert memory("ls", "--at", first["position"], "--json").document["text"] == "always double"
    assert memory("edit", "quotes in JS", "x", "--revision", "1").code == CONFLICT
    assert memory("rm", "QUOTES in JS").out == "forgot Quote in JS single\n"
    assert memory("rm", "quotes in JS").code == NOT_FOUND
    assert memory("add", "...", "x").code == INVALID_INPUT
    assert [event["kind"] for event in memory("history", "quotes in JS", "--json").documents] == [
        "preference_remembered", "preference_remembered", "preference_forgotten",
    ]  # fmt: skip
    history = memory("history").out.splitlines()
    assert history[0].endswith("quotes in JS: always double (said by Ada)")
    assert history[-1].endswith("  Quote in JS")


def test_the_history_of_all_notes_names_them_on_a_terminal(cli: Cli, note: Command):
    id = note("add", "hello", "--json").document["note"]["id"]
    note("delete", id)
    assert id not in note("history").out  # the columns of a pipe stay the same
    for arguments, times in (((), 2), ((id,), 0)):
        with cli.start("note", "history", *arguments, "--session", cli.page, "--no-color", terminal=True) as running:
            running.wait_for("note_deleted")
            running.process.wait(PATIENCE)
            assert running.seen.count(id.encode()) == times


def test_memory_sync_keeps_preferences_and_a_file_equal(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SCRATCHBUS_SCOPE", cli.page)
    file = tmp_path / "AGENTS.md"
    cli("memory", "add", "quotes", "double")
    assert cli("memory", "sync", str(file)).out == f"synced {file} wrote the file\n"
    file.write_text(file.read_text().replace("double", "single"))
    done = cli("memory", "sync", str(file), "--json").document
    assert done == {
        "scope": cli.page, "file": str(file), "remembered": ["quotes"], "forgotten": [], "conflicts": [],
        "is_written": True,
    }  # fmt: skip
    assert cli("memory", "ls", "--json").document["text"] == "single"
    assert "- quotes: single (" in cli("context", "--scope", cli.page).out
    file.write_bytes(b"\xff")
    failed = cli("memory", "sync", str(file))
    assert (failed.code, "is not UTF-8" in failed.err) == (INVALID_INPUT, True)


def test_recall_shows_relevant_memories_and_the_reasons(cli: Cli, note: Command):
    taken = note("add", "Q3 is off by 45,000", "--tag", "analysis", "--json").document["note"]
    where = ("--session", cli.page)
    (found,) = cli("recall", "what is off?", *where, "--json").documents
    assert {name: found[name] for name in ("kind", "page", "id", "text")} == {
        "kind": "note", "page": f"session:{cli.page}", "id": taken["id"], "text": "Q3 is off by 45,000",
    }  # fmt: skip
    assert found["reasons"][0] == {"list": "words", "rank": 1, "by": "off"}
    note("delete", taken["id"])
    assert cli("recall", "off", *where).err.startswith("Nothing matches there; search elsewhere with --session")
    assert "words 1 (off)" in cli("recall", "off", *where, "--at", taken["position"]).out
    assert cli("recall", "off", "--session", "a b").code == INVALID_INPUT
