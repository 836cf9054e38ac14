"""The archive of the log on the command line, and `archive ID`, which archives observations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scratchbus import Bus
from tests.edges.conftest import Cli
from tests.inspection import log_length

pytestmark = pytest.mark.real


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive of the settings, which gets all but the last three events."""
    directory = tmp_path / "archive"
    monkeypatch.setenv("SCRATCHBUS_ARCHIVE_URL", str(directory))
    monkeypatch.setenv("SCRATCHBUS_RETAIN", "1ms")
    monkeypatch.setenv("SCRATCHBUS_RETAIN_EVENTS", "3")
    monkeypatch.setenv("SCRATCHBUS_BUS", f"cli-{tmp_path.name[-20:].strip('-_')}")
    return directory


def test_archive_with_ids_archives_observations(cli: Cli):
    first, second = cli.add("one"), cli.add("two")
    assert cli("archive", first, second[-8:], "--reason", "run").code == 0
    assert cli("archive", "--reason", "done", cli.add("three")).code == 0
    assert cli.json("list").documents[2]["status"] == "archived"
    assert cli("archive", "nonsense").code == 5
    assert "--fence" in cli("archive", first, "--help").out
    assert "scratchbus archive 8F3K2M9Q --reason 'no longer of interest'" in cli("archive", "--help").out
    assert cli("archive").code == 2


def test_archive_takes_options_whose_value_is_the_name_of_a_former_subcommand(cli: Cli):
    added = cli.anywhere("add", "observation", "x", "--source", "test", "--page", "run", "--json").document["id"]
    done = cli.anywhere("archive", added, "--page", "run", "--source", "verify", "--json")
    assert done.document["status"] == "archived", done.err


def test_log_archive_has_its_own_command_and_its_former_one(cli: Cli, directory: Path):
    assert all(word in cli("log-archive", "--help").out for word in ("run", "list", "verify"))
    for command in ("run", "list", "ls"):
        assert cli("log-archive", command).code == 0
    for former in ("run", "ls"):
        assert cli("archive", former).err == cli("log-archive", former).err
        assert cli("archive", "--json", former).code == 0


def test_old_events_are_archived_listed_and_verified(cli: Cli, directory: Path):
    for number in range(10):
        cli.add(f"{number}")
    done = cli.json("archive", "run").document
    assert (done["events"], done["trimmed"], done["segments"]) == (7, 7, 1)
    assert done["floor"] == done["end"]
    assert cli("archive", "run").out.startswith("Nothing to archive")
    (segment,) = cli.json("archive", "ls").documents
    assert (segment["first_seq"], segment["last_seq"], segment["events"]) == (1, 7, 7)
    assert (directory / segment["file"]).is_file()
    assert "1–7" in cli("archive", "ls").out
    assert cli("archive", "verify").out.startswith("sound 7 events in 1 segment of 1 log")
    assert cli("archive", "verify", str(directory)).code == 0
    (checked,) = cli.json("archive", "verify", f"file://{directory}").documents
    assert (checked["events"], checked["problems"]) == (7, [])
    assert len(cli.json("tail").documents) == 10
    assert f"up to {done['floor']} in the archive, {directory}" in cli("status").out
    for number in range(4):
        cli.add(f"{number}")
    assert cli("archive", "run").out.startswith("archived 4 events in 1 segment; 4 events left the log")


def test_archive_verify_lists_problems_and_exits_with_1(cli: Cli, directory: Path):
    for number in range(10):
        cli.add(f"{number}")
    cli("archive", "run")
    (file,) = directory.rglob("*.jsonl.zst")
    file.write_bytes(file.read_bytes()[:-1])
    found = cli("archive", "verify")
    assert found.code == 1
    assert f"{file.name} it has " in found.out
    assert "1 problem" in found.out
    shown = cli("archive", "verify", "--json")
    assert shown.code == 1
    assert len(json.loads(shown.out)["problems"]) == 1


def test_archive_verify_lists_a_file_that_cannot_be_read(cli: Cli, directory: Path):
    for number in range(10):
        cli.add(f"{number}")
    cli("archive", "run")
    (file,) = directory.rglob("*.jsonl.zst")
    file.unlink()
    file.mkdir()
    found = cli("archive", "verify")
    assert found.code == 1, found.err
    assert f"{file.name} it cannot be read: archive {file}: Is a directory" in found.out
    assert "1 problem" in found.out


def test_archive_commands_without_a_url_name_the_setting(cli: Cli, tmp_path: Path):
    for command in ("run", "ls", "verify"):
        done = cli("archive", command)
        assert done.code == 5
        assert "archive_url is not set; set it, or SCRATCHBUS_ARCHIVE_URL, to a directory" in done.err
    assert "is not an archive URL" in cli("archive", "verify", "ftp://x/y").err
    assert "no segments yet" in cli("archive", "ls", str(tmp_path / "nothing")).err


def test_an_archive_below_a_file_has_no_segments(cli: Cli, tmp_path: Path):
    (tmp_path / "file").touch()
    done = cli("archive", "ls", str(tmp_path / "file" / "archive"))
    assert (done.code, done.out) == (0, "")
    assert "no segments yet" in done.err


def test_an_unwritable_archive_is_an_error_and_keeps_the_log(cli: Cli, directory: Path):
    for number in range(10):
        cli.add(f"{number}")
    directory.write_text("a file is in the way")
    done = cli("archive", "run")
    assert done.code == 6
    assert "Not a directory" in done.err or "File exists" in done.err
    with Bus.connect() as bus:
        assert log_length(bus) == 10


def test_verifying_a_missing_archive_is_an_error(cli: Cli, tmp_path: Path):
    done = cli("archive", "verify", str(tmp_path / "nothing"))
    assert done.code == 3
    assert f"There is no archive at {tmp_path / 'nothing'}" in done.err
    assert cli("--json", "archive", "verify", str(tmp_path / "nothing")).err == done.err


def test_verify_reports_a_damaged_archive(cli: Cli, directory: Path):
    for number in range(10):
        cli.add(f"{number}")
    cli("archive", "run")
    assert cli("verify").code == 0
    (file,) = directory.rglob("*.jsonl.zst")
    file.write_bytes(file.read_bytes()[:-1])
    found = cli("verify", "--json")
    assert found.code == 1
    kinds = {json.loads(line)["kind"]: json.loads(line)["where"] for line in found.out.splitlines()}
    assert kinds["archive"].endswith(("floor", file.name))
