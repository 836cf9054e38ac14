"""`serve` runs a daemon's work until a signal, and waits while the engine is away."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from scratchbus import Bus
from scratchbus.daemon import INVALID_INPUT, runtime
from scratchbus.errors import (
    CodeTooOld,
    EngineAuth,
    EngineForbidden,
    EngineFull,
    EngineLoading,
    EngineReadOnly,
    EngineUnreachable,
    InvalidInput,
    LogRewound,
    NotReplicated,
    PositionLost,
    SettingsError,
)
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]


def signal_this_process(number=signal.SIGTERM):
    """Send a signal to this process, which must have a handler: otherwise it would end all tests."""
    assert signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler), "serve has ended already"
    os.kill(os.getpid(), number)


def connect():
    return Bus.connect("memory://runtime", source="tester")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(runtime, "_FIRST_PAUSE", 0.001)


class Engine:
    """An engine that refuses a number of connections before it accepts one."""

    def __init__(self, refusals, error=EngineUnreachable):
        self.refusals = refusals
        self.error = error

    def connect(self):
        if self.refusals:
            self.refusals -= 1
            raise self.error("redis://localhost:6379 does not answer; is it running?")
        return connect()


def test_serve_ends_when_the_work_is_done():
    done = []
    runtime.serve(connect, lambda bus, stop: done.append(bus.position()))
    assert len(done) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_work(number):
    before = signal.getsignal(number)

    def run(bus, stop):
        signal_this_process(number)
        assert stop.wait(30)

    runtime.serve(connect, run)
    assert signal.getsignal(number) is before


def test_a_signal_to_a_forked_child_does_not_stop_its_parent():
    seen = []

    def run(bus, stop):
        child = multiprocessing.get_context("fork").Process(target=signal.raise_signal, args=(signal.SIGTERM,))
        child.start()
        child.join(30)
        seen.append((child.exitcode, stop.wait(0.2)))

    runtime.serve(connect, run)
    assert seen == [(0, False)]


def test_the_main_thread_sleeps_until_the_work_ends_or_a_signal_arrives(monkeypatch):
    naps, wait = [], threading.Condition.wait

    def recorded(self, timeout=None):
        if threading.current_thread() is threading.main_thread():
            naps.append(timeout)
        return wait(self, timeout)

    monkeypatch.setattr(threading.Condition, "wait", recorded)

    def run(bus, stop):
        signal_this_process()
        assert stop.wait(30)

    runtime.serve(connect, run)
    assert set(naps) <= {runtime.GRACE, None}


def test_work_that_does_not_stop_is_abandoned(monkeypatch):
    monkeypatch.setattr(runtime, "GRACE", 0.05)
    release = threading.Event()

    def run(bus, stop):
        signal_this_process()
        release.wait(60)

    with capture_logs() as logs:
        runtime.serve(connect, run)
    assert not release.is_set()
    release.set()
    assert "stopped in the middle of its work" in [line["event"] for line in logs]


def test_serve_waits_for_the_engine_and_logs_each_change_once(quick):
    engine = Engine(refusals=5)
    seen = []
    with capture_logs() as logs:
        runtime.serve(engine.connect, lambda bus, stop: seen.append(bus.position()))
    assert len(seen) == 1
    assert [line["event"] for line in logs] == ["started", "waiting", "going on", "stopped"]


def test_repeated_failures_are_logged_once(quick):
    problems = [EngineReadOnly("read-only")] * 5

    def run(bus, stop):
        if problems:
            raise problems.pop()

    with capture_logs() as logs:
        runtime.serve(connect, run)
    assert [line["event"] for line in logs] == ["started", "waiting", "going on", "stopped"]


def test_recovery_is_logged_once_the_work_has_lasted(quick, monkeypatch):
    monkeypatch.setattr(runtime, "_PROOF", 0.01)
    with capture_logs() as logs:

        def run(bus, stop):
            eventually(lambda: "going on" in [line["event"] for line in logs])

        runtime.serve(Engine(refusals=1).connect, run)
    assert [line["event"] for line in logs] == ["started", "waiting", "going on", "stopped"]


def test_work_restarts_when_the_engine_returns(quick):
    seen = []

    def run(bus, stop):
        seen.append(bus)
        if len(seen) < 3:
            raise EngineUnreachable("gone")

    runtime.serve(connect, run)
    assert len(set(map(id, seen))) == 3


@pytest.mark.parametrize(
    "problem",
    [
        EngineUnreachable("gone"),
        EngineLoading("loading"),
        EngineReadOnly("read-only"),
        EngineFull("full"),
        NotReplicated(0, 1),
        LogRewound("rewound"),
        PositionLost("trimmed"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_transient_errors_are_retried_with_growing_pauses(monkeypatch, problem):
    waited: list[int] = []

    def pause(attempt: int) -> float:
        waited.append(attempt)
        return 0.0

    monkeypatch.setattr(runtime, "pause", pause)

    def run(bus, stop):
        if len(waited) < 5:
            raise problem

    runtime.serve(connect, run)
    assert waited == [1, 2, 3, 4, 5]


def test_a_signal_while_waiting_for_the_engine_ends_serve(monkeypatch):
    def refuse():
        raise EngineUnreachable("gone")

    def pause(attempt):
        assert attempt == 1, "serve did not end"
        signal_this_process()
        return 60.0

    monkeypatch.setattr(runtime, "pause", pause)
    monkeypatch.setattr(runtime, "GRACE", 30.0)
    with capture_logs() as logs:
        runtime.serve(refuse, lambda bus, stop: None)
    assert [line["event"] for line in logs] == ["started", "waiting", "stopped"]


def test_settings_broken_while_the_engine_was_away_are_waited_for(quick):
    attempts = []

    def connect_again():
        attempts.append(connect)
        if len(attempts) in (2, 3):
            raise SettingsError("scratchbus.yaml:1:1: this is not YAML")
        return connect()

    def run(bus, stop):
        if len(attempts) == 1:
            raise EngineUnreachable("it is away")

    runtime.serve(connect_again, run)
    assert len(attempts) == 4


def test_an_impatient_serve_raises_the_first_refusal():
    with pytest.raises(EngineUnreachable):
        runtime.serve(Engine(refusals=1).connect, lambda bus, stop: None, patient=False)


@pytest.mark.parametrize(
    "error", [EngineAuth, EngineForbidden, CodeTooOld, InvalidInput, SettingsError, ZeroDivisionError]
)
def test_permanent_errors_are_raised(error):
    def run(bus, stop):
        raise error("no")

    with pytest.raises(error):
        runtime.serve(connect, run)


def test_pauses_grow_with_jitter_up_to_a_limit():
    pauses = [[runtime.pause(attempt) for _ in range(50)] for attempt in (0, 3, 100)]
    assert all(0.05 <= pause <= 0.1 for pause in pauses[0])
    assert all(0.4 <= pause <= 0.8 for pause in pauses[1])
    assert all(1.0 <= pause <= 2.0 for pause in pauses[2])
    assert len(set(pauses[2])) > 1


def test_logs_are_json_when_stderr_is_no_terminal():
    code = (
        "import structlog; from scratchbus.daemon.runtime import configure_logging; configure_logging('info');"
        "structlog.get_logger().info('hello', who='wörld'); structlog.get_logger().debug('not this')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ran.stdout == b""
    (line,) = ran.stderr.decode().splitlines()
    assert json.loads(line)["who"] == "wörld"


def test_a_daemon_works_with_a_closed_stderr():
    code = (
        "import structlog; from scratchbus.daemon.runtime import configure_logging; configure_logging(); print('done')"
    )
    ran = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code], capture_output=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, b"done\n")


def test_libraries_log_json_from_warnings_up():
    code = (
        "import logging; from scratchbus.daemon.runtime import configure_logging\n"
        "configure_logging('info', daemon='expirer')\n"
        "logging.getLogger('apscheduler').info('not this')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: logging.getLogger('apscheduler').exception('Job %s failed', 'sweep')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    (line,) = map(json.loads, ran.stderr.decode().splitlines())
    assert (line["event"], line["level"], line["daemon"]) == ("Job sweep failed", "error", "expirer")
    assert "ZeroDivisionError" in line["exception"]


@pytest.mark.parametrize("stderr", ["None", "open('/dev/full', 'w', 1)", "open(os.devnull)", "closed"])
def test_a_line_that_cannot_be_logged_stops_no_work(stderr):
    """As where stderr was closed by the parent, is a broken pipe, or a file on a full disk."""
    program = f"""
import os, sys
from scratchbus.telemetry.logs import stderr_logger
closed = open(os.devnull, "w")
closed.close()
sys.stderr = {stderr}
stderr_logger().warning("lost")
print("done")
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert found.stdout == "done\n"


def test_a_default_that_cannot_be_computed_ends_a_daemon_with_one_line():
    program = """
import os
from pathlib import Path
from unittest.mock import Mock
os.environ.pop("XDG_STATE_HOME", None)
Path.home = Mock(side_effect=RuntimeError("Could not determine home directory."))
from daemons.executor import main
main([])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert found.returncode == INVALID_INPUT
    assert found.stderr == (
        "executor: this user has no home directory for state; set XDG_STATE_HOME, or name the file by its option\n"
    )


def test_ctrl_c_before_the_work_has_begun_exits_with_130():
    program = """
from scratchbus.daemon import daemon
@daemon("tester")
def main(daemon):
    raise KeyboardInterrupt
main(["--url", "unix:///nowhere.sock"])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (found.returncode, found.stdout, found.stderr) == (130, b"", b"")


def test_a_full_disk_for_its_log_stops_no_daemon():
    program = """
import structlog
from scratchbus.daemon.runtime import configure_logging
configure_logging()
structlog.get_logger().info("lost")
print("done")
"""
    with open("/dev/full", "w") as full:
        found = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, timeout=60)
    assert found.stdout == b"done\n"
