"""Conversations and private files of sessions, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from scratchbus.daemon.exit_codes import INVALID_INPUT, NOT_FOUND, USAGE
from tests.edges.conftest import Cli, Result

pytestmark = pytest.mark.real
Command = Callable[..., Result]


@pytest.fixture
def turns(cli: Cli) -> Command:
    """A `turns` command of the test's own session."""
    return lambda *arguments: cli("turns", *arguments, "--session", cli.page)


@pytest.fixture
def files(cli: Cli) -> Command:
    """A `files` command of the same session."""
    return lambda *arguments: cli("files", *arguments, "--session", cli.page)


def test_turns_are_appended_listed_and_compacted(turns: Command):
    first = turns("append", "user", "Which total\nis wrong?", "--tokens", "5", "--json").document["turn"]
    assert (first["role"], first["tokens"]) == ("user", 5)
    assert turns("append", "assistant", "Q3.").out.endswith(" assistant Q3.\n")
    assert [line.split(None, 2)[2] for line in turns("list").out.splitlines()] == [
        "user       Which total is wrong?",
        "assistant  Q3.",
    ]
    assert [each["content"] for each in turns("list", "--after", first["id"], "--json").documents] == ["Q3."]
    summary = turns("compact", "Q3 is wrong.", "--turn", first["id"], "--json").document["turn"]
    assert summary["replaces"] == [first["id"]]
    assert [each["role"] for each in turns("list", "--shown", "--json").documents] == ["summary", "assistant"]
    assert len(turns("list", "--json").documents) == 2
    kinds = [event["kind"] for event in turns("history", "--json").documents]
    assert kinds == ["turn_appended", "turn_appended", "turns_compacted"]


def test_turns_append_reads_standard_input(turns: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"two\nlines")))
    piped = turns("append", "tool", "-", "--json")
    assert piped.document["turn"]["content"] == "two\nlines"


def test_invalid_turns_commands_are_refused(turns: Command):
    assert turns("list").err == "Nothing was said yet\n"
    assert turns("append", "User", "x").code == INVALID_INPUT
    assert turns("compact", "x").code == NOT_FOUND
    assert turns("list", "--shown", "--limit", "1").code == USAGE
    refused = turns("list", "--limit", "0")
    assert (refused.code, "None" in refused.err) == (USAGE, False)


def test_files_are_put_listed_printed_and_deleted(files: Command, tmp_path: Path):
    source = tmp_path / "check.py"
    source.write_bytes(b"print()\n")
    assert files("ls").err == "There are no files\n"
    assert files("put", "scripts/check.py", str(source)).out == "written scripts/check.py\n"
    (listed,) = files("ls", "--json").documents
    assert (listed["path"], listed["size"], len(listed["sha256"])) == ("scripts/check.py", 8, 64)
    assert files("ls").out.split()[0] == "8"
    assert files("cat", "scripts/check.py", "--json").document == {"path": "scripts/check.py", "content": "print()\n"}
    where = Path(files("path", "scripts/check.py").out.strip())
    assert where.read_bytes() == b"print()\n"
    (where.parent / "more").write_text("by a program")
    assert [each["path"] for each in files("sync", "--json").documents] == ["scripts/check.py", "scripts/more"]
    assert files("rm", "scripts/more").out == "deleted scripts/more\n"
    assert files("cat", "scripts/more").code == NOT_FOUND
    assert files("put", "../escape", str(source)).code == INVALID_INPUT


def test_evict_reports_that_nothing_was_evicted(cli: Cli):
    assert cli("files", "evict", "--json").document == {"evicted": {}}
    assert cli("files", "evict").err == "Nothing was evicted\n"
