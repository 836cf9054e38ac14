"""The demo tells the truth, in time, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest

from daemons.demo_crew import Crew
from daemons.demo_sample import sample_log
from daemons.rules import read_rules
from scratchbus.settings import shipped
from tests import launcher
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
RUN = "import sys; from pathlib import Path; from daemons.demo import run_demo; "


@pytest.fixture
def directory():
    """Make a directory for temporary files whose path is short, as most people's is."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


@pytest.fixture
def demo(directory):
    """Start the demo in a process with this directory for its temporary files; it has ended when the test has."""
    started = []

    def start(arguments=""):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(directory), "COLUMNS": "100"}
        process = subprocess.Popen(
            launcher.command("-c", f"{RUN}sys.exit(run_demo({arguments}))"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)  # so that it can still stop what it started
        process.communicate(timeout=60)


def processes_of(directory):
    """Return the command lines of the processes that have something to do with a directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(directory) in command or os.readlink(entry / "cwd").startswith(str(directory)):
                found.append(command)
        except OSError:
            continue
    return found


def outcome_of(process, directory):
    """Return what a demo that ends well says on stdout; the failure of another shows its daemons' logs."""
    out, err = process.communicate(timeout=120)
    logs = {log.name: log.read_text(errors="replace")[-4000:] for log in directory.rglob("logs/*.log")}
    assert process.returncode == 0, "\n\n".join([err, *(f"{name}:\n{text}" for name, text in logs.items())])
    return out


def attempts_in(text):
    (rule,) = read_rules(shipped("logwatch.yaml"))
    attempts: Counter[str] = Counter()
    for line in text.splitlines():
        if seen := rule.sighting(line):
            attempts[seen["context"]["address"]] += seen["times"]
    return attempts


@pytest.mark.slow
def test_the_demo_tells_its_story_and_leaves_nothing_behind(demo, directory):
    out = outcome_of(demo(), directory)
    for words in ("The page, by priority", "claimed by", "executor-", "blocklist:203.0.113.66", "resolved",
                  "archived: expired", "The life of one observation", "└ executor-", "said by logwatch",
                  "exit code 0"):  # fmt: skip
        assert words in out
    assert "\x1b[" not in out  # plain in a pipe
    assert list(directory.iterdir()) == []
    assert processes_of(directory) == []


@pytest.mark.slow
def test_the_numbers_are_those_of_the_log(demo, directory):
    told = json.loads(outcome_of(demo("as_json=True"), directory))
    expected = attempts_in(sample_log())
    assert told["by_address"] == dict(expected)
    assert told["addresses"] == len(expected)
    assert told["attempts"] == sum(expected.values())
    assert sorted(told["blocklist"]) == sorted(address for address, times in expected.items() if times >= 3)
    assert told["resolved"] == told["acted_on"] == len(told["blocklist"])
    assert told["expired"] == 1


@pytest.mark.slow
def test_a_log_of_the_users_is_read_and_one_without_attacks_too(demo, directory):
    log = directory / "quiet.log"
    log.write_text("nothing to see here\n")
    assert json.loads(outcome_of(demo(f"Path({str(log)!r}), as_json=True"), directory))["addresses"] == 0
    assert list(directory.iterdir()) == [log]


def test_a_log_that_is_not_there_is_an_error(demo, directory):
    _, err = (process := demo("Path('/nowhere/auth.log')")).communicate(timeout=60)
    assert process.returncode == 3
    assert err == "demo: /nowhere/auth.log: no such file; check --log, or create it and start again\n"
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_stops_everything(demo, directory, number):
    process = demo()
    eventually(lambda: any("run executor" in command for command in processes_of(directory)), "the daemons run")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(directory.iterdir()) == []
    assert processes_of(directory) == []


def go_on_when_aborted(pid):
    """Let a process that stands still go on once SIGABRT waits for it."""
    status = Path(f"/proc/{pid}/status")

    def is_aborted():
        waiting = int(re.search(r"^ShdPnd:\s+(\w+)", status.read_text(), re.MULTILINE)[1], 16)
        return waiting >> (signal.SIGABRT - 1) & 1

    eventually(is_aborted, "it is aborted")
    os.kill(pid, signal.SIGCONT)


def test_a_daemon_that_does_not_stop_leaves_its_stacks(directory, monkeypatch):
    monkeypatch.setattr("daemons.demo_crew._STOP_SECONDS", 0.2)
    monkeypatch.setattr("daemons.demo_crew._STACKS_SECONDS", PATIENCE)
    with Crew(directory, {"SCRATCHBUS_URL": "redis://127.0.0.1:1"}, threading.Event()) as crew:
        pid = crew.start("expirer", "expirer")
        eventually(crew.have_started, "the expirer runs")
        eventually(lambda: b"waiting" in (directory / "expirer.log").read_bytes(), "it waits for its engine")
        os.kill(pid, signal.SIGSTOP)
        going_on = threading.Thread(target=go_on_when_aborted, args=(pid,))
        going_on.start()
        assert crew.stop() == {"expirer": -signal.SIGABRT}
        going_on.join()
    assert "most recent call first" in (directory / "expirer.log").read_text()
