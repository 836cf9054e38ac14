"""`systemd` writes units that systemd accepts, and whose commands run."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from scratchbus.cli import main
from scratchbus.daemon import INVALID_INPUT, USAGE
from scratchbus.engine.embedded import server
from tests.waiting import PATIENCE, eventually

ROOT = Path(__file__).parents[2]


def _has_started(log: Path) -> bool:
    return '"started"' in log.read_text()


class Machine:
    """A user's home directory, with a fake systemctl that records its calls."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "a home, 100% $HOME"
        self.units = directory / "config" / "systemd" / "user"
        self._called = directory / "called"
        tool = directory / "bin" / "systemctl"
        tool.parent.mkdir()
        tool.write_text(f'#!/bin/sh\necho "$*" >> {self._called}\n')
        tool.chmod(0o755)

    @property
    def called(self) -> list[str]:
        return self._called.read_text().splitlines()

    def lines(self, name: str, key: str) -> list[list[str]]:
        """Return the words of these lines of a unit, as systemd reads them."""
        lines = (self.units / f"scratchbus-{name}.service").read_text().splitlines()
        words = [shlex.split(line.partition("=")[2]) for line in lines if line.startswith(f"{key}=")]
        return [[word.replace("%%", "%").replace("$$", "$") for word in each] for each in words]

    def environment(self, name: str) -> dict[str, str]:
        text = [word for words in self.lines(name, "Environment") for word in words]
        return {**os.environ, "PYTHONPATH": str(ROOT), **dict(word.split("=", 1) for word in text)}

    def run(self, name: str, key: str, **variables: str) -> str:
        """Run the command of a unit as systemd would, which sets MAINPID while the main process runs."""
        (command,) = self.lines(name, key)
        environment = self.environment(name) | variables
        return subprocess.run(
            command, env=environment, cwd=self.home.parent, check=True, capture_output=True, text=True
        ).stdout


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SCRATCHBUS_HOME", str(made.home))
    monkeypatch.delenv("SCRATCHBUS_URL", raising=False)
    yield made
    server.stop(made.home)


def test_install_writes_and_starts_units(machine: Machine, capsys: pytest.CaptureFixture[str]):
    assert main(["systemd", "install", "--user", "--journal", "ssh", "--yes"]) == 0
    names = [f"scratchbus-{name}.service" for name in ("engine", "expirer", "logwatch", "projector")]
    assert sorted(path.name for path in machine.units.iterdir()) == names
    assert machine.called[0] == "--user daemon-reload"
    assert machine.called[1].startswith("--user enable --now scratchbus-engine.service")
    assert all(f"{name}" in machine.called[1] for name in names)
    (command,) = machine.lines("logwatch", "ExecStart")
    assert command[-5:] == ["run", "logwatch", "--follow", "--journal", "ssh"]
    assert "no logwatch" not in capsys.readouterr().err


def test_a_second_install_removes_and_restarts_units_of_the_first(machine: Machine):
    assert main(["systemd", "install", "--user", "--journal", "ssh", "--yes"]) == 0
    first = len(machine.called)
    assert main(["systemd", "install", "--user", "--journal", "nginx", "--yes"]) == 0
    assert machine.called[first : first + 2] == [
        "--user daemon-reload", "--user try-restart scratchbus-logwatch.service",
    ]  # fmt: skip
    second = len(machine.called)
    assert main(["systemd", "install", "--user", "--yes"]) == 0
    assert machine.called[second] == "--user disable --now scratchbus-logwatch.service"
    assert not (machine.units / "scratchbus-logwatch.service").exists()
    assert "try-restart" not in " ".join(machine.called[second:])


def test_systemd_accepts_the_units(machine: Machine):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("NOT TESTED: systemd-analyze is not installed, so nothing has checked the units")
    assert main(["systemd", "install", "--user", "--journal", "ssh", "--yes"]) == 0
    for path in machine.units.iterdir():
        done = subprocess.run(
            [analyze, "--user", "--man=no", "verify", path],
            env={**os.environ, "XDG_RUNTIME_DIR": str(machine.units)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        complaints = [line for line in done.stderr.splitlines() if path.name in line or "scratchbus" in line]
        assert (done.returncode, complaints) == (0, []), done.stderr


@pytest.mark.slow
def test_the_units_run_the_engine_and_its_daemons(machine: Machine):
    assert main(["systemd", "install", "--user", "--yes"]) == 0
    machine.run("engine", "ExecStartPre")
    machine.run("engine", "ExecStart")
    running = server.find_running(machine.home)
    assert running is not None
    (pid_file,) = machine.lines("engine", "PIDFile")
    assert int(Path(" ".join(pid_file)).read_text()) == running.pid
    for name in ("projector", "expirer"):
        (command,) = machine.lines(name, "ExecStart")
        log = machine.home.parent / f"{name}.err"
        with (
            log.open("wb") as err,
            subprocess.Popen(command, env=machine.environment(name), stderr=err, cwd=machine.home.parent) as daemon,
        ):
            try:
                eventually(partial(_has_started, log), f"the {name} runs")
                daemon.send_signal(signal.SIGTERM)
                assert daemon.wait(PATIENCE) == 0, log.read_text()
            finally:
                daemon.kill()
    machine.run("engine", "ExecStop", MAINPID=str(running.pid))
    assert server.find_running(machine.home) is None


def test_an_engine_that_someone_stopped_stays_down(machine: Machine):
    assert main(["systemd", "install", "--user", "--yes"]) == 0
    assert machine.lines("engine", "Restart") == [["on-failure"]]  # the engine exits with 0 when it is stopped
    assert main(["start"]) == 0
    machine.run("engine", "ExecStop")  # late, after an engine that has ended by itself
    running = server.find_running(machine.home)
    assert running is not None
    machine.run("engine", "ExecStop", MAINPID=str(running.pid))
    assert server.find_running(machine.home) is None


def test_a_remote_server_needs_no_engine_unit(machine: Machine, tmp_path: Path):
    url = "redis://me:s%ecr$t@127.0.0.1:1"
    assert main(["start", "--url", url]) == INVALID_INPUT
    assert main(["systemd", "install", "--user", "--yes", "--url", url, "--log", str(tmp_path / "x log")]) == 0
    assert {path.name for path in machine.units.iterdir()} == {
        f"scratchbus-{name}.service" for name in ("projector", "expirer", "logwatch")
    }
    text = (machine.units / "scratchbus-projector.service").read_text()
    assert 'Environment="SCRATCHBUS_URL=redis://me:s%%ecr$t@127.0.0.1:1"' in text
    assert "scratchbus-engine" not in text
    assert (machine.units / "scratchbus-projector.service").stat().st_mode & 0o077 == 0
    (command,) = machine.lines("logwatch", "ExecStart")
    assert command[-3:] == ["--follow", "--log", str(tmp_path / "x log")]


def test_an_archive_url_adds_an_archiver_unit(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SCRATCHBUS_ARCHIVE_URL", "/srv/old events")
    assert main(["systemd", "install", "--user", "--yes"]) == 0
    assert machine.lines("archiver", "ExecStart")[0][-2:] == ["run", "archiver"]
    for name in ("engine", "projector", "archiver"):
        environment = machine.environment(name)
        assert environment["SCRATCHBUS_ARCHIVE_URL"] == "/srv/old events"
        assert environment["SCRATCHBUS_HOME"] == str(machine.home)


def test_uninstall_removes_only_installed_units(machine: Machine):
    assert main(["systemd", "install", "--user", "--yes"]) == 0
    mine = machine.units / "scratchbus-mine.service"
    mine.write_bytes(b"# du caf\xe9\n[Service]\nExecStart=/bin/true\n")
    assert main(["systemd", "uninstall", "--user"]) == 0
    assert list(machine.units.iterdir()) == [mine]
    assert machine.called[-2].startswith("--user disable --now scratchbus-engine.service")
    assert machine.called[-1] == "--user daemon-reload"


def test_install_writes_nothing_without_confirmation(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    assert main(["systemd", "install"]) == USAGE
    assert main(["systemd", "install", "--user", "--log", "x", "--journal", "y"]) == USAGE
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert main(["systemd", "install", "--user"]) == 0
    assert main(["systemd", "install", "--user", "--yes", "--journal", "a\nb"]) == INVALID_INPUT
    assert not machine.units.exists()
