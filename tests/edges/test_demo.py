"""The demo: its numbers, its errors, and that it cleans up."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from daemons.demo import _Demo
from daemons.demo_crew import Crew, DemoFailed
from daemons.demo_report import Report
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
    """A directory for temporary files with a short path, as is usual."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


@pytest.fixture
def demo(directory):
    """A function that starts the demo with this directory for temporary files; the demo ends with the test."""
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
            process.send_signal(signal.SIGTERM)  # so that it stops its own processes
        process.communicate(timeout=60)


def processes_of(directory):
    """Return the command lines of the processes that name a directory or run in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(directory) in command or os.readlink(entry / "cwd").startswith(str(directory)):
                found.append(command)
        except OSError:
            continue
    return found


def output_of(process, directory):
    """Return the output of a demo that must succeed; fail with the logs of its daemons."""
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
def test_the_demo_shows_every_step_and_cleans_up(demo, directory):
    out = output_of(demo(), directory)
    for words in ("The page, by priority", "claimed by", "executor-", "blocklist:203.0.113.66", "resolved",
                  "archived: expired", "The life of one observation", "└ executor-", "said by logwatch",
                  "exit code 0"):  # fmt: skip
        assert words in out
    assert "\x1b[" not in out  # plain in a pipe
    assert list(directory.iterdir()) == []
    assert processes_of(directory) == []


@pytest.mark.slow
def test_the_numbers_match_the_log(demo, directory):
    numbers = json.loads(output_of(demo("as_json=True"), directory))
    expected = attempts_in(sample_log())
    assert numbers["by_address"] == dict(expected)
    assert numbers["addresses"] == len(expected)
    assert numbers["attempts"] == sum(expected.values())
    assert sorted(numbers["blocklist"]) == sorted(address for address, times in expected.items() if times >= 3)
    assert numbers["resolved"] == numbers["acted_on"] == len(numbers["blocklist"])
    assert numbers["expired"] == 1


@pytest.mark.slow
def test_a_log_without_attacks_is_read(demo, directory):
    log = directory / "quiet.log"
    log.write_text("nothing to see here\n")
    assert json.loads(output_of(demo(f"Path({str(log)!r}), as_json=True"), directory))["addresses"] == 0
    assert list(directory.iterdir()) == [log]


def test_a_missing_log_is_an_error(demo, directory):
    _, err = (process := demo("Path('/nowhere/auth.log')")).communicate(timeout=60)
    assert process.returncode == 3
    assert err == "demo: /nowhere/auth.log: no such file; check --log, or create it and start again\n"
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("'/dev/null'", "/dev/null: is not a regular file; give --log the path of a log file"),
        ("url='memory://x'", "the demo has several processes, which cannot share memory://; leave --url out"),
        ("url=''", "url: '' is not valid here; write the URL of an engine, or leave it out for the embedded engine"),
    ],
)
def test_what_the_daemons_cannot_read_is_refused_at_once(demo, directory, arguments, problem):
    _, err = (process := demo(arguments)).communicate(timeout=60)
    assert (process.returncode, err) == (5, f"demo: {problem}\n")
    assert list(directory.iterdir()) == []


def test_a_compressed_log_is_refused_at_once(demo, directory):
    log = directory / "auth.log.1.gz"
    log.write_bytes(gzip.compress(sample_log().encode()))
    _, err = (process := demo(repr(str(log)))).communicate(timeout=60)
    problem = f"demo: {log}: is compressed; unpack it, and give --log the path of the text\n"
    assert (process.returncode, err) == (5, problem)
    assert list(directory.iterdir()) == [log]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_stops_its_processes_and_cleans_up(demo, directory, number):
    process = demo()
    eventually(lambda: any("run executor" in command for command in processes_of(directory)), "the daemons run")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(directory.iterdir()) == []
    assert processes_of(directory) == []


def test_daemons_that_ctrl_c_ends_are_no_failure(directory):
    interrupted = threading.Event()
    with Crew(directory, {}, interrupted) as crew:
        crew.start("router", "no-such-daemon")
        eventually(lambda: crew._processes["router"].poll(), "it fails")
        with pytest.raises(DemoFailed):
            crew.is_done("router")
        interrupted.set()
        with pytest.raises(KeyboardInterrupt):
            crew.is_done("router")
        (directory / "router.log").write_text('{"event": "started"}')
        with pytest.raises(KeyboardInterrupt):
            _Demo(directory, None, None, Report(Console()), None, 0.0)._stop(crew)


@pytest.mark.slow
def test_a_daemon_that_does_not_stop_logs_its_stacks(directory, monkeypatch):
    monkeypatch.setattr("daemons.demo_crew._STOP_SECONDS", 0.2)
    monkeypatch.setattr("daemons.demo_crew._STACKS_SECONDS", PATIENCE)
    with Crew(directory, {"SCRATCHBUS_URL": "redis://127.0.0.1:1"}, threading.Event()) as crew:
        crew.start("expirer", "expirer")
        eventually(crew.have_started, "the expirer runs")
        eventually(lambda: b"waiting" in (directory / "expirer.log").read_bytes(), "it waits for its engine")
        send = subprocess.Popen.send_signal

        def send_all_but_sigterm(process, number):
            if number != signal.SIGTERM:
                send(process, number)

        monkeypatch.setattr(subprocess.Popen, "send_signal", send_all_but_sigterm)
        assert crew.stop() == {"expirer": -signal.SIGABRT}
    assert "most recent call first" in (directory / "expirer.log").read_text()
