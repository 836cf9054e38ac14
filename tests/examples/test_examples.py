"""The programs in `examples/` do what their READMEs say, with scripts in place of models."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

import pytest

from scratchbus import Bus
from tests import launcher
from tests.edges.http.conftest import serving
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
SSH_LOG = """\
Dec 10 06:55:46 host sshd[24200]: Failed password for root from 203.0.113.9 port 38926 ssh2
Dec 10 06:55:48 host sshd[24200]: Failed password for root from 203.0.113.9 port 38926 ssh2
"""
REPORT = """\
<testsuite>
  <testcase classname="shop.test_cart" name="test_total"><failure message="3 != 4"/></testcase>
  <testcase classname="shop.test_cart" name="test_empty"/>
  <testcase classname="shop.test_pay" name="test_card"><failure message="timeout after 30 s"/></testcase>
</testsuite>
"""


@pytest.fixture
def name(embedded_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bus that the programs connect to."""
    name = f"test-{token_hex(6)}"
    monkeypatch.setenv("SCRATCHBUS_URL", embedded_url)
    monkeypatch.setenv("SCRATCHBUS_BUS", name)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    return name


@pytest.fixture
def bus(name: str) -> Iterator[Bus]:
    with Bus.connect(source="reader") as opened:
        yield opened


def run(*arguments: object) -> list[str]:
    """Run a Python program; return the lines that it printed."""
    done = subprocess.run(
        launcher.command(*arguments), capture_output=True, text=True, timeout=PATIENCE, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def contents(observations):
    return {each.content for each in observations}


@contextmanager
def started(*command: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program while the block runs."""
    arguments = [*map(str, command)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def test_the_shell_and_node_examples_work_together(bus: Bus, embedded_url: str, tmp_path: Path):
    disks = tmp_path / "df"
    disks.write_text("Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 100 95 5 95% /my data\n")
    shell = {"DISKS": f"cat {disks}", "PAGE": "team/home"}
    with serving(embedded_url) as served, started(
        "node", EXAMPLES / "node/router.mjs", API=served.api, PAGE="team/home"
    ) as node:  # fmt: skip
        assert node.stdout.readline() == "ready: alerts on team/home\n"

        def look():
            command = [str(EXAMPLES / "shell/disk_watch.sh"), "--once"]
            environment = {**os.environ, **shell, "API": served.api}
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
            )  # fmt: skip
            assert done.stderr == ""
            return done.stdout

        assert look() == look() == "alert: /my data is 95% full\n"
        assert node.stdout.readline() == "Disk /my data is 95% full -> Delete old logs on /my data\n"
        page = bus.page("team/home")
        alert, advice = page.active()
        assert (alert.source, alert.occurrences, advice.source) == ("disk-watch", 2, "node-router")
        assert advice.evidence == [alert.id]
        disks.write_text("Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 100 9 91 9% /my data\n")
        assert look() == "resolved: /my data\n"
        assert look() == ""
        assert page.get(alert.id).status == "resolved"


def test_the_shell_example_says_what_is_wrong(embedded_url: str, tmp_path: Path):
    disks = tmp_path / "df"
    disks.write_text("/dev/a 100 95 5 95% /\n/dev/b 100 95 5 95% /b\n")
    with serving(embedded_url) as served:
        environment = {**os.environ, "DISKS": f"cat {disks}", "PAGE": "no(name)", "API": served.api}
        done = subprocess.run(
            [str(EXAMPLES / "shell/disk_watch.sh"), "--once"], env=environment, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("no(name)") >= 2, done.stderr  # the answers, which say what a page may be called


def test_the_homelab_example_reports_problems(bus: Bus, tmp_path: Path):
    backups, log = tmp_path / "backups", tmp_path / "auth.log"
    backups.mkdir()
    log.write_text(SSH_LOG)
    program = (EXAMPLES / "homelab/homelab.py", "--backups", backups, "--log", log, "--once", "--disk-limit", 1.1)
    shown = run(*program)
    assert shown == [
        f" 90  There is no backup in {backups}",
        " 90  Failed SSH passwords from 203.0.113.9 (2 times)",
    ]
    (backups / "monday.tar").write_text("x")
    os.utime(backups / "monday.tar", (0, 0))
    assert f" 90  There is no backup in {backups} (2 times)" in run(*program)
    (backups / "tuesday.tar").write_text("x")
    assert run(*program) == [" 90  Failed SSH passwords from 203.0.113.9 (2 times)"]
    assert len(bus.page().list(status="resolved", tags="homelab")) == 1


def test_the_homelab_example_leaves_what_others_claim(bus: Bus, tmp_path: Path):
    program = (EXAMPLES / "homelab/homelab.py", "--backups", tmp_path / "backups", "--once", "--disk-limit", 1.1)
    alert = f" 90  There is no backup in {tmp_path / 'backups'}"
    assert run(*program) == [alert]
    (claimed,) = bus.page().active()
    claim = bus.page().claim(claimed.id, ttl="1h")
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups/monday.tar").write_text("x")
    assert run(*program, "--log", tmp_path / "no.log") == [alert]
    bus.page().release(claimed.id, fence=claim.fence)
    assert run(*program) == []


def test_the_homelab_example_reports_a_disk_that_it_cannot_read(bus: Bus, tmp_path: Path):
    (tmp_path / "monday.tar").write_text("x")
    program = (EXAMPLES / "homelab/homelab.py", "--backups", tmp_path, "--once", "--disk", tmp_path / "none")
    assert run(*program) == [f" 90  {tmp_path / 'none'} cannot be read: No such file or directory"]


def test_the_ci_triage_example_triages_before_the_release(bus: Bus, tmp_path: Path):
    (tmp_path / "junit.xml").write_text(REPORT)
    first, *triaged, last = run(EXAMPLES / "ci_triage/crew.py", tmp_path / "junit.xml")
    assert first.startswith("2 failures; ready: [")
    assert "Release" not in first
    assert last == "Release: all failures are triaged"
    assert sorted(line.partition(": ")[2] for line in triaged) == [
        "shop.test_cart::test_total: 3 != 4 -> broken",
        "shop.test_pay::test_card: timeout after 30 s -> flaky",
    ]
    page = bus.page("ci")
    assert contents(page.active()) == {"Fix shop.test_cart::test_total"}
    (claimed,) = [event for event in bus.events(kinds="claimed") if event.subject == page.list(tags="release")[0].id]
    closed = [event.seq for event in bus.events(kinds="status_changed") if event.type == "risk_alert"]
    assert max(closed) < claimed.seq


def test_the_ci_triage_example_counts_tests_that_could_not_run(bus: Bus, tmp_path: Path):
    (tmp_path / "junit.xml").write_text(REPORT.replace("<failure", "<error"))
    assert run(EXAMPLES / "ci_triage/crew.py", tmp_path / "junit.xml")[0].startswith("2 failures; ready: [")


def test_the_ci_triage_example_accepts_long_names_and_messages(bus: Bus, tmp_path: Path):
    report = REPORT.replace("test_total", f"test_total[{'x' * 600}]").replace("3 != 4", "m" * 70_000)
    (tmp_path / "junit.xml").write_text(report)
    assert run(EXAMPLES / "ci_triage/crew.py", tmp_path / "junit.xml")[-1] == "Release: all failures are triaged"


@pytest.mark.parametrize("program", ["ci_triage/crew.py", "two_agents/agent.py", "langgraph_agent/agent.py"])
def test_an_example_without_its_arguments_shows_its_usage(program: str):
    if program.startswith("langgraph") and find_spec("langgraph.graph") is None:
        pytest.skip("NOT TESTED: langgraph is not installed")
    done = subprocess.run(
        launcher.command(EXAMPLES / program), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr[:7], done.stderr.count("\n")) == (1, "usage: ", 1)


def test_the_two_agents_example_needs_a_repository(bus: Bus, tmp_path: Path):
    run(EXAMPLES / "two_agents/plan.py")
    done = subprocess.run(
        launcher.command(EXAMPLES / "two_agents/agent.py", "alice", tmp_path / "none"),
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, f"{tmp_path / 'none'} is not a directory; name your checkout\n")
    assert len(bus.page("repo").list(tags="task", status="active")) == 4


def test_the_two_agents_example_shares_a_repository(bus: Bus, tmp_path: Path):
    run(EXAMPLES / "two_agents/plan.py")
    page = bus.page("repo")
    assert contents(page.ready()) == {"Add the column `email`", "Rename `user` to `customer`"}
    lines: list[str] = []
    agents = [
        threading.Thread(target=lambda name=name: lines.extend(run(EXAMPLES / "two_agents/agent.py", name, tmp_path)))
        for name in ("alice", "bob")
    ]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    done = [line.partition(": ")[2] for line in lines]
    assert len(done) == 4
    schema, api = ((tmp_path / file).read_text().splitlines() for file in ("schema.sql", "api.py"))
    assert set(schema) == {"Add the column `email`", "Rename `user` to `customer`"}  # no edit was overwritten
    assert set(api) == {"Return the email", "Rename `user` to `customer`"}
    assert (tmp_path / "README.md").read_text() == "Describe the email\n"
    order = [event.subject for event in bus.events(kinds="status_changed")]
    places = {each.content: order.index(each.id) for each in page.list(tags="task")}
    assert places["Add the column `email`"] < places["Return the email"] < places["Describe the email"]


@pytest.mark.skipif(find_spec("langgraph.graph") is None, reason="NOT TESTED: langgraph is not installed")
def test_the_langgraph_example_remembers_across_processes(bus: Bus):
    agent = EXAMPLES / "langgraph_agent/agent.py"
    assert run(agent, "ada", "I like hiking in the Alps.") == ["I know nothing of you yet"]
    assert run(agent, "ada", "Where could I go hiking?") == ["I remember: I like hiking in the Alps"]
    assert run(agent, "bob", "Where could I go hiking?") == ["I know nothing of you yet"]
    assert len(bus.page("chat").list()) == 3


def test_every_example_has_a_readme_of_one_screen():
    for directory in EXAMPLES.iterdir():
        if directory.is_dir() and directory.name != "__pycache__":
            text = (directory / "README.md").read_text()
            assert len(text.splitlines()) <= 45, directory
            assert re.search(r"^```console$", text, re.M)
            assert "pip install 'scratchbus" not in text, f"{directory}: nothing is published to install"
