"""The frame of daemons: their target, the public names, and `scratchbus run`."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

import scratchbus
import scratchbus.daemon
from scratchbus.daemon import Daemon, daemon
from scratchbus.settings import load_settings
from tests.edges.conftest import Cli


def target(url: str, page: str = "main") -> str:
    return Daemon(load_settings(url=url), page, "tester").target


@pytest.mark.parametrize(
    "url",
    [
        "redis://logwatch:{}@localhost:6379/0",
        "unix://logwatch:{}@/run/redis.sock",
        "redis+sentinel://logwatch:{0}@one,two/main?sentinel_password={0}",
    ],
)
def test_the_target_does_not_depend_on_the_password(url: str) -> None:
    assert target(url.format("old-s3cr3t")) == target(url.format("new"))
    assert "s3cr3t" not in target(url.format("old-s3cr3t"))


def test_the_target_depends_on_the_server_and_the_page() -> None:
    assert len({target("redis://:pw@one"), target("redis://:pw@two"), target("redis://:pw@one", "other")}) == 3


@pytest.mark.parametrize("module", [scratchbus, scratchbus.daemon])
def test_every_public_name_exists(module: ModuleType) -> None:
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    assert sorted(module._HOMES) == sorted(module.__all__)


@pytest.mark.real
def test_a_daemon_in_memory_says_that_it_is_alone(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "auth.log"
    log.touch()
    options = ("--url", "memory://alone", "--log", str(log), "--state", str(tmp_path / "state.json"))
    done = cli.process("run", "logwatch", *options)
    assert (done.code, "is seen by no other process" in done.err) == (0, True)


@pytest.mark.real
def test_options_before_the_name_apply_to_the_daemon(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "auth.log"
    log.write_text("Dec 10 06:55:48 host sshd[1]: Failed password for root from 192.0.2.1 port 9 ssh2\n")
    state = tmp_path / "state.json"
    done = cli.process(
        *("--page", cli.page, "--source", "watcher", "run", "logwatch"), "--log", str(log), "--state", str(state)
    )
    assert done.code == 0, done.err
    assert {json.loads(line)["daemon"] for line in done.err.splitlines()} == {"watcher"}
    (alert,) = cli.json("list").documents
    assert alert["source"] == "watcher"


@pytest.mark.parametrize(("given", "page"), [((), "from-the-environment"), (("--page", "given"), "given")])
def test_the_page_of_a_daemon_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], page: str
) -> None:
    monkeypatch.setenv("SCRATCHBUS_PAGE", "from-the-environment")
    pages: list[str] = []

    @daemon("tester")
    def command(settings: Daemon) -> None:
        pages.append(settings.page)

    command.main([*given, "--url", "memory://"], standalone_mode=False)
    assert pages == [page]
