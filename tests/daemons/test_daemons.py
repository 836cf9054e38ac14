"""The daemons as processes: they start, reconnect, survive kills, and stop."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from datetime import timedelta
from functools import partial

import pytest

import daemons
from scratchbus import Bus
from tests import launcher
from tests.daemons.conftest import ROOT
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.real

LINE = "Dec 10 06:55:48 host sshd[24200]: Failed password for root from {} port 38926 ssh2\r\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "auth.log"
    path.touch()
    return path


def append(log, *addresses):
    with log.open("a", newline="") as file:
        file.writelines(LINE.format(address) for address in addresses)


@pytest.fixture
def page(engine):
    with Bus.connect(engine.url, source="tester") as bus:
        yield bus.page("main")


def attempts(page):
    return {each.context["address"]: each.occurrences for each in page.list(type="risk_alert", limit=None)}


@pytest.mark.slow
@pytest.mark.parametrize("name", daemons.NAMES)
@pytest.mark.parametrize("program", [["daemons/{}.py"], ["-m", "daemons.{}"], ["-m", "scratchbus.cli", "run", "{}"]])
def test_daemon_starts_as_script_module_and_command(program, name):
    arguments = [*(part.format(name) for part in program), "--help"]
    start = [sys.executable, *arguments] if name == "router" else launcher.command(*arguments)
    done = subprocess.run(start, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"[default: {name}]" in " ".join(done.stdout.split())


@pytest.mark.parametrize("file", sorted((ROOT / "daemons").glob("*.py")), ids=lambda file: file.name)
def test_modules_of_daemons_have_under_three_hundred_lines(file):
    assert len(file.read_text().splitlines()) < 300


@pytest.mark.parametrize(
    ("name", "number"),
    [("projector", signal.SIGINT), *((name, signal.SIGTERM) for name in daemons.NAMES)],
)
def test_a_daemon_stops_cleanly(start, log, name, number):
    daemon = start(name, *(["--log", log, "--follow"] if name == "logwatch" else []))
    eventually(lambda: daemon.has_logged("started"), f"{name} has started")
    assert daemon.end(number) == 0
    assert daemon.has_logged("stopped")
    assert daemon.out == ""
    assert all(line["daemon"] == name for line in daemon.log_lines)


def is_waiting(daemon):
    """Return whether a daemon has logged that it waits for the engine."""
    return any(map(daemon.has_logged, ("waiting", "the log cannot be read; trying again", "waiting for the engine")))


@pytest.mark.slow
def test_daemons_wait_for_a_lost_engine_and_continue(start, engine, log, page):
    append(log, "192.0.2.1")
    others = [start("projector"), start("expirer")]
    daemons = [start("logwatch", "--log", log, "--follow"), start("router"), start("executor"), *others]
    eventually(lambda: attempts(page) == {"192.0.2.1": 1}, "the first line is counted")
    eventually(lambda: all(daemon.has_logged("started") for daemon in daemons), "all have started")
    engine.kill()
    append(log, "192.0.2.1", "192.0.2.1")
    eventually(lambda: all(map(is_waiting, daemons[1:])), "they log that they wait")
    engine.start()
    eventually(lambda: attempts(page) == {"192.0.2.1": 3}, "the other lines are counted")
    eventually(lambda: page.list(type="action_suggestion"), "the router suggests to act on the urgent alert")
    eventually(lambda: page.list(type="risk_alert")[0].links, "the executor acts on it")
    for daemon in daemons[1:]:
        eventually(lambda: daemon.has_logged("going on"), "it logs that it goes on")  # noqa: B023  # called at once
    for daemon in others:
        assert [line["event"] for line in daemon.log_lines].count("waiting") == 1
    assert [daemon.end() for daemon in daemons] == [0] * len(daemons)


@pytest.mark.slow
def test_a_repeatedly_killed_log_watcher_counts_each_line_once(start, log, page):
    addresses = [f"192.0.2.{number % 7}" for number in range(100)]
    for _ in range(4):
        before = sum(attempts(page).values())
        append(log, *addresses)
        watcher = start("logwatch", "--log", log, "--follow")
        eventually(lambda: sum(attempts(page).values()) > before, "some lines are counted")  # noqa: B023  # called at once
        watcher.end(signal.SIGKILL)
    append(log, *addresses)
    assert start("logwatch", "--log", log).process.wait(2 * PATIENCE) == 0
    assert attempts(page) == {address: 5 * addresses.count(address) for address in set(addresses)}


@pytest.mark.parametrize(
    ("name", "arguments", "code", "says"),
    [
        ("logwatch", ["--log", "nowhere.log"], 3, "nowhere.log: no such file"),
        ("logwatch", ["--log", "."], 2, "is a directory"),
        (
            "logwatch",
            [],
            2,
            "logwatch: name either a file with --log, or a systemd unit with --journal; see `logwatch.py --help`",
        ),
        ("logwatch", ["--log", "x.log", "--rules", "bad.yaml"], 5, "bad.yaml:1:1: rule: unknown key"),
        ("logwatch", ["--log", "x.log", "--url", "unix:///nowhere.sock"], 6, "nowhere.sock"),
        ("executor", ["--tools", "bad.yaml"], 5, "bad.yaml:1:1: rule: unknown key"),
        ("executor", ["--tools", "nowhere.yaml"], 5, "nowhere.yaml: cannot be read"),
        ("router", ["--page", "no spaces"], 5, "'no spaces' is not a page name"),
        ("router", ["--name", "no spaces"], 5, "'no spaces' is not a valid name"),
        ("router", ["--threshold", "200"], 2, "not in the range"),
        ("router", ["--url", "http://localhost"], 5, "http"),
        ("evaluator", ["--quiet-for", "soon"], 2, "'soon' is not a finite duration"),
        ("executor", ["--claim-ttl", "never"], 2, "'never' is not a finite duration; use one such as 90s"),
        ("executor", ["--no-such-option"], 2, "see `executor.py --help`"),
    ],
)
def test_bad_input_ends_a_daemon_with_one_line_and_its_exit_code(start, tmp_path, name, arguments, code, says):
    (tmp_path / "bad.yaml").write_text("rule: []\n")
    (tmp_path / "x.log").touch()
    daemon = start(name, *arguments)
    assert daemon.process.wait(PATIENCE) == code
    (line,) = [line for line in daemon.err.splitlines() if not line.startswith('{"')]
    assert says in line


def add_alert(page, number):
    context = {"address": f"192.0.2.{number}"}
    return page.add("risk_alert", "Failed passwords", tags=["brute-force"], context=context, dedupe_key=str(number))


@pytest.mark.slow
def test_executors_act_once_on_suggestions_of_two_routers(start, page, tmp_path):
    blocklist = tmp_path / "blocklist.txt"
    daemons = [start("router"), start("router"), *(start("executor", "--blocklist", blocklist) for _ in range(2))]
    eventually(lambda: all(daemon.has_logged("started") for daemon in daemons), "all have started")
    for number in (*range(10), *range(10)):
        add_alert(page, number)
    eventually(lambda: blocklist.exists() and len(blocklist.read_text().split()) == 10, "all addresses are blocked")
    eventually(
        lambda: all(each.links for each in page.list(type="risk_alert")), "all alerts are linked to their action"
    )
    eventually(lambda: not page.list(type="action_suggestion", status="active"), "all suggestions are resolved")
    assert [daemon.end() for daemon in daemons] == [0] * len(daemons)
    assert sorted(blocklist.read_text().split()) == sorted(f"192.0.2.{number}" for number in range(10))
    assert [each.occurrences for each in page.list(type="action_suggestion")] == [1] * 10


def test_another_executor_acts_once_on_a_killed_ones_job(start, page, tmp_path):
    blocklist = tmp_path / "blocklist.txt"
    start("router")
    alert = add_alert(page, 1)
    with blocklist.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # an executor that acts now blocks here
        killed = start("executor", "--blocklist", blocklist, "--claim-ttl", "1s", "--name", "executor-1")
        eventually(
            lambda: any(each.claim for each in page.list(type="action_suggestion")),
            "the executor has claimed the suggestion",
        )
        killed.end(signal.SIGKILL)
    start("executor", "--blocklist", blocklist, "--name", "executor-2")
    eventually(lambda: page.list(type="action_suggestion", status="resolved"), "the other executor has resolved it")
    (suggestion,) = page.list(type="action_suggestion")
    claims = [event.holder for event in page.history(suggestion.id) if event.kind == "claimed"]
    assert (claims[0], claims[-1]) == ("executor-1", "executor-2")
    assert blocklist.read_text() == "192.0.2.1\n"
    assert page.get(alert.id).links == ["blocklist:192.0.2.1"]


def test_a_restarted_executor_continues_its_claims_by_instance(start, page, tmp_path):
    blocklist = tmp_path / "blocklist.txt"
    start("router")
    add_alert(page, 1)
    mine = ("executor", "--blocklist", blocklist, "--claim-ttl", "1h", "--instance", "host-7")
    with blocklist.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # an executor that acts now blocks here
        killed = start(*mine)
        eventually(
            lambda: any(each.claim for each in page.list(type="action_suggestion")),
            "the executor has claimed the suggestion",
        )
        killed.end(signal.SIGKILL)
    start(*mine)
    eventually(lambda: page.list(type="action_suggestion", status="resolved"), "it is resolved before the claim lapses")
    assert blocklist.read_text() == "192.0.2.1\n"


def has_changed(page, id):
    """Return whether an observation has changed since it was added."""
    return len(page.history(id)) == 2


def test_an_expirer_process_records_expiry_and_reminders(start, page):
    start("expirer")
    short = page.add("observation", "a short life", ttl="50ms")
    timed = page.add("reminder", "soon", remind_at=short.created_at + timedelta(milliseconds=50))
    waiting = page.add("reminder", "after an alert", remind_on={"type": "risk_alert"})
    page.add("risk_alert", "now")
    for each, kind in ((short, "status_changed"), (timed, "due"), (waiting, "due")):
        eventually(partial(has_changed, page, each.id), f"{each.content}: the log says so")
        assert [(event.kind, event.by) for event in page.history(each.id)[1:]] == [(kind, "expirer")]
    assert page.get(short.id).reason_code == "expired"
    assert page.get(timed.id).due_at is not None
