"""Claims on the command line belong to a name and a terminal session, as each command is a process."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from scratchbus.cli import invocation
from scratchbus.cli.invocation import terminal_instance
from tests.edges.conftest import PROGRAM, ROOT, Cli
from tests.waiting import PATIENCE


def on_another_terminal(cli: Cli, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in its own session, as on another terminal."""
    return subprocess.run(
        [*PROGRAM, "--page", cli.page, *arguments], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True,
        start_new_session=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


CLAIMS = {
    "by name": (("--by", "executor-1"), ()),
    "by name, then by source": (("--by", "executor-1"), ("--source", "executor-1")),
    "by source": (("--source", "executor-1"), ("--source", "executor-1")),
    "by source, for another": (("--source", "ops", "--by", "executor-1"), ("--source", "ops")),
}


@pytest.mark.parametrize(("claimed", "closed"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_holds_across_the_commands_of_a_terminal(cli: Cli, claimed: tuple[str, ...], closed: tuple[str, ...]):
    id = cli.add()
    fence = cli.json("claim", id, *claimed).document["fence"]
    assert cli("update", id, "--content", "mine", "--fence", str(fence), *closed).code == 0
    done = cli("resolve", id, "--fence", str(fence), *closed)
    assert done.code == 0, done.err


def test_a_claim_by_claim_next_holds_across_commands(cli: Cli):
    id = cli.add()
    assert cli("claim-next", "--by", "executor-1").code == 0
    assert cli("resolve", id, "--fence", "1").code == 0


def test_observations_are_resolved_together_with_an_action(cli: Cli):
    ids = [cli.add(), cli.add()]
    assert cli("resolve", *ids, "--action", "freeze-1").code == 0
    for id in ids:
        found = cli.json("show", id).document
        assert (found["status"], found["links"]) == ("resolved", ["freeze-1"])
    assert cli("resolve", ids[0], "--action", "").code == 5


def test_an_update_releases_a_claim(cli: Cli):
    id = cli.add()
    fence = cli.json("claim", id, "--by", "executor-1").document["fence"]
    done = cli.json("update", id, "--content", "half done", "--fence", str(fence), "--release").document
    assert (done["content"], done.get("claim")) == ("half done", None)


def test_a_narrow_terminal_shows_the_fence_of_a_claim(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    id = cli.add()
    with cli.start("claim", id, "--by", "executor-of-the-payments-department", terminal=True) as claimed:
        claimed.wait_for("pass --fence 1 to the commands that change it")


def test_a_fence_from_another_terminal_is_refused(cli: Cli):
    id = cli.add()
    assert cli("claim", id, "--by", "executor-1").code == 0
    for who in ((), ("--source", "executor-1"), ("--source", "intruder")):
        refused = on_another_terminal(cli, "resolve", id, "--fence", "1", *who)
        assert refused.returncode == 4, refused.stdout
        assert "is claimed by executor-1 until" in refused.stderr
        assert "pass" not in refused.stderr
    assert on_another_terminal(cli, "release", id, "--by", "executor-1", "--fence", "1").returncode == 4
    assert on_another_terminal(cli, "claim", id, "--by", "executor-1", "--fence", "1").returncode == 4


def test_a_fence_from_another_source_is_refused(cli: Cli):
    id = cli.add()
    assert cli("claim", id, "--by", "executor-1").code == 0
    assert cli("resolve", id, "--fence", "1", "--source", "intruder").code == 4
    assert cli("release", id, "--fence", "1", "--by", "intruder").code == 4


@pytest.mark.parametrize("way", ["option", "environment"])
def test_terminals_that_name_the_same_instance_share_a_claim(cli: Cli, monkeypatch: pytest.MonkeyPatch, way: str):
    id = cli.add()
    named: tuple[str, ...] = ("--instance", "desk-7")
    if way == "environment":
        monkeypatch.setenv("SCRATCHBUS_INSTANCE", "desk-7")
        named = ()
    assert cli("claim", id, "--by", "executor-1", *named).code == 0
    assert on_another_terminal(cli, "resolve", id, "--fence", "1", "--instance", "desk-8").returncode == 4
    assert on_another_terminal(cli, "release", id, "--by", "executor-1", *named).returncode == 0


def test_the_instance_of_a_terminal_cannot_be_guessed(cli: Cli):
    id = cli.add()
    assert cli("claim", id, "--by", "executor-1").code == 0
    known = f"{os.uname().nodename} user {os.getuid()} session {os.getsid(0)}"
    for guess in (known, f"None {known}", f" {known}"):
        refused = on_another_terminal(cli, "resolve", id, "--fence", "1", "--source", "executor-1", "--instance", guess)
        assert refused.returncode == 4, refused.stdout


def test_a_user_with_another_home_does_not_hold_the_claims(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    id = cli.add()
    assert cli("claim", id, "--by", "executor-1").code == 0
    with monkeypatch.context() as other:
        other.setenv("SCRATCHBUS_HOME", str(tmp_path / "home"))
        assert cli("resolve", id, "--fence", "1", "--source", "executor-1").code == 4
    assert cli("resolve", id, "--fence", "1").code == 0


def test_only_its_user_can_read_the_key_of_a_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    home = tmp_path / "home"
    monkeypatch.setenv("SCRATCHBUS_HOME", str(home))
    assert cli("active").code == 0
    (key,) = home.iterdir()
    assert (stat.S_IMODE(key.stat().st_mode), stat.S_IMODE(home.stat().st_mode)) == (0o600, 0o700)
    first = key.read_text()
    assert cli("active").code == 0
    assert key.read_text() == first
    key.chmod(0o640)
    assert cli("active").code == 0
    assert key.read_text() != first
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.unlink()
    key.symlink_to(tmp_path / "target")
    assert cli("active").code == 0
    assert not key.is_symlink()
    assert [each.name for each in home.iterdir()] == [key.name]


def test_the_key_of_a_terminal_is_stored_without_hard_links(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def refuse(*_: object) -> None:
        raise PermissionError("this file system has none")

    monkeypatch.setattr("os.link", refuse)
    monkeypatch.setenv("SCRATCHBUS_HOME", str(tmp_path))
    assert cli("active").code == 0
    (key,) = tmp_path.iterdir()
    first = key.read_text()
    assert cli("active").code == 0
    assert (key.read_text(), stat.S_IMODE(key.stat().st_mode)) == (first, 0o600)


def test_without_a_stored_key_a_claim_ends_with_its_command(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCRATCHBUS_HOME", str(tmp_path / "file" / "home"))
    id = cli.add()
    assert cli("claim", id, "--by", "executor-1").code == 0
    assert cli("resolve", id, "--fence", "1").code == 4
    id = cli.add()
    assert cli("claim", id, "--by", "executor-1", "--instance", "desk-7").code == 0
    assert cli("resolve", id, "--fence", "1", "--source", "executor-1", "--instance", "desk-7").code == 0


def test_claim_next_skips_observations_that_the_terminal_holds(cli: Cli):
    cli.add()
    assert cli("claim-next", "--by", "executor-1").code == 0
    assert cli("claim-next", "--by", "executor-1").code == 3


def test_a_resolve_by_fence_is_recorded_under_the_claim_holder(cli: Cli):
    id = cli.add()
    cli("claim", id, "--by", "executor-1")
    cli("resolve", id, "--fence", "1")
    assert cli.json("history", id).documents[-1]["by"] == "executor-1"


def test_only_the_claiming_terminal_releases_without_a_fence(cli: Cli):
    id = cli.add()
    cli("claim", id, "--by", "executor-1")
    assert on_another_terminal(cli, "release", id, "--by", "executor-1").returncode == 4
    assert cli("release", id, "--by", "executor-1").code == 0


def test_an_invalid_instance_is_refused(cli: Cli):
    refused = cli("claim", "8F3K2M9Q", "--by", "me", "--instance", "a\nb")
    assert refused.code == 5
    assert "instance" in refused.err


def test_a_key_that_another_command_has_just_made_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, read, seen = terminal_instance(tmp_path), invocation._read, list[Path]()
    monkeypatch.setattr(invocation, "_read", lambda path: read(path) if seen else seen.append(path))
    assert terminal_instance(tmp_path) == first
    (key,) = tmp_path.iterdir()
    key.chmod(0o644)
    assert terminal_instance(tmp_path) != first
