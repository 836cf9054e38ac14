"""The command line with each role: a forbidden command is refused in one line, without a password."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from scratchbus import Bus
from scratchbus.cli import main
from scratchbus.cli.root import root
from scratchbus.daemon.exit_codes import ENGINE, OK
from tests import launcher
from tests.faults.roles import ADMINISTERS, APPENDS, COMMITS, READS, SUBSCRIBES, GuardedServer, exported, rounds
from tests.faults.servers import embedded_binary
from tests.inspection import log_length
from tests.waiting import eventually

pytestmark = pytest.mark.real

COMMANDS: dict[str, frozenset[str]] = {
    "add observation new": APPENDS,
    "update {open} --content else": APPENDS,
    "active": READS,
    "ready": READS,
    "list --type observation": READS,
    "show {open}": READS,
    "history {open}": READS,
    "tail": READS,
    "replay --until 10m": READS,
    "replay --without-source owner": READS,
    "diff --from 1h": READS,
    "trace goal-0": READS,
    "claim {open} --by me": APPENDS,
    "claim-next --by me": APPENDS,
    "release {claimed} --source owner --instance desk": APPENDS,
    "link {open} goal-1": APPENDS,
    "review {open}": APPENDS,
    "resolve {open}": APPENDS,
    "archive {open}": APPENDS,
    "reopen {resolved}": APPENDS,
    "refute {open} --reason wrong": APPENDS,
    "clear-resolved {resolved}": APPENDS,
    "note add x --session s": APPENDS,
    "note scratch x --session s": APPENDS,
    "note search x --session s": READS,
    "note list --session s": READS,
    "note update {note} --content y --session s": APPENDS,
    "note delete {note} --session s": APPENDS,
    "note tags --session s": READS,
    "note history {note} --session s": READS,
    "notepad read --session s": READS,
    "notepad write y --session s": APPENDS,
    "notepad append y --session s": APPENDS,
    "notepad update prepend --content y --session s": APPENDS,
    "notepad history --session s": READS,
    "todo read --session s": READS,
    "todo write --session s []": READS,
    'todo write --session s [{{"id":"1","content":"x"}}]': APPENDS,
    "todo set --session s 1 --content x": APPENDS,
    "todo add --session s x": APPENDS,
    "todo inject --session s": READS,
    "scratchpad show me": READS,
    "scratchpad whoami me": READS,
    "scratchpad write me x": APPENDS,
    "turns append user x --session s": APPENDS,
    "turns list --session s": READS,
    "turns compact --session s x": APPENDS,
    "turns history --session s": READS,
    "files list --session s": READS,
    "files cat x.txt --session s": READS,
    "files put y.txt {types} --session s": APPENDS,
    "files rm x.txt --session s": APPENDS,
    "files sync --session s": READS,
    "files path --session s": READS,
    "files evict": READS,
    "memory add x y --scope ada": APPENDS,
    "memory list --scope ada": READS,
    "memory edit quotes z --scope ada": APPENDS,
    "memory rm quotes --scope ada": APPENDS,
    "memory history --scope ada": READS,
    "memory sync {agents} --scope ada": READS,
    "facts relations": READS,
    "facts push-relations {relations}": ADMINISTERS,
    "facts assert x uses y --scope ada": APPENDS,
    "facts ingest a->uses->b --scope ada": APPENDS,
    "facts query --scope ada": READS,
    "facts path x z --scope ada": READS,
    "facts neighbours x --scope ada": READS,
    "facts timeline x uses --scope ada": READS,
    "facts why {fact} --scope ada": READS,
    "facts retract {fact} --reason wrong --scope ada": APPENDS,
    "facts same x y --scope ada": APPENDS,
    "facts contested x --scope ada": READS,
    "facts review --scope ada": READS,
    "recall x --scope ada": READS,
    "workspace sync {project} --session s": APPENDS,
    "context": READS,
    "context surface x": READS,
    "context exposure {open}": READS,
    "status": READS,
    "types list": READS,
    "types show": READS,
    "dead-letters list {subscription}": READS,
    "dead-letters retry {subscription} --all": SUBSCRIBES,
    "dead-letters drop {subscription} --all": SUBSCRIBES,
    "erase {open} --reason asked --source me --yes": ADMINISTERS,
    "rebuild": ADMINISTERS,
    "verify": ADMINISTERS,
    "repair": ADMINISTERS,
    "import {export}": ADMINISTERS,
    "types push {types}": ADMINISTERS,
    "log-archive run": ADMINISTERS,
}
"""The commands, on prepared data, and the roles that may run them; `up` and `watch` have their own tests."""

NOT_TRIED = {
    "up", "watch",  # below
    "start", "stop", "demo",  # only for the embedded engine, which has no users
    "completion", "types check", "log-archive list", "log-archive verify",  # send nothing to the engine
    "mcp token add", "mcp token list", "mcp token revoke", "setup", "serve", "workspace rules",  # neither
    "systemd install", "systemd uninstall",
    "hook session-start", "hook user-prompt", "hook pre-compact", "hook stop",  # never fail, with any role
}  # fmt: skip


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedServer]:
    server = GuardedServer(embedded_binary())
    server.start()
    yield server
    server.close()


@contextmanager
def empty_bus(guarded: GuardedServer) -> Iterator[Bus]:
    """Flush the server and open a bus on it as a user who may do everything."""
    with guarded.client() as client:
        client.flushall()
    with Bus.connect(guarded.url, source="owner", instance="desk") as bus:
        yield bus


@pytest.fixture
def bus(guarded: GuardedServer) -> Iterator[Bus]:
    with empty_bus(guarded) as bus:
        yield bus


@pytest.fixture
def things(bus: Bus, tmp_path: Path) -> dict[str, str]:
    return prepare(bus, tmp_path)


def prepare(bus: Bus, tmp_path: Path) -> dict[str, str]:
    """Create the data that commands need; return its ids and paths by their names in `COMMANDS`."""
    note, page = bus.notes("s").add("x", ["t"]).note.id, bus.page()
    bus.turns("s").append("user", "x")
    bus.files("s").write("x.txt", "x")
    bus.preferences("ada").remember("quotes", "double")
    fact = bus.facts("ada").assert_fact("x", "uses", "z").id
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / "TODO.md").write_text("- [ ] look\n")
    ids = {name: page.add("observation", name).id for name in ("open", "claimed", "resolved")}
    page.claim(ids["claimed"])
    page.link(ids["open"], "goal-0")
    page.resolve(ids["resolved"])
    types = tmp_path / "types.yaml"
    types.write_text(f"{bus.types.text}\n  another:\n    description: Made up\n")
    with bus.subscribe("dispatch", max_attempts=1) as deliveries:
        next(deliveries).fail("on purpose")
    export = tmp_path / "export.jsonl"
    export.write_text("\n".join(exported(bus)))
    relations = tmp_path / "relations.yaml"
    relations.write_text("relations:\n  needs: {}\n")
    known = {
        "note": note,
        "relations": str(relations),
        "fact": fact,
        "agents": str(tmp_path / "AGENTS.md"),
        "project": str(project),
    }
    return {**ids, **known, "types": str(types), "subscription": "dispatch", "export": str(export)}


def named(group: click.Group, before: str = "") -> Iterator[str]:
    """Yield the names of all commands."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from named(command, f"{before}{name} ")
        else:
            yield before + name


def test_every_command_is_tried() -> None:
    tried, context = tuple(COMMANDS), click.Context(root)
    for name in root.list_commands(context):
        root.get_command(context, name)  # imports it
    assert {name for name in named(root) if not any(f"{each} ".startswith(f"{name} ") for each in tried)} == NOT_TRIED


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_succeeds_or_is_refused_in_one_line(
    guarded: GuardedServer,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SCRATCHBUS_ARCHIVE_URL", str(tmp_path / "archive"))
    for roles in rounds(COMMANDS[command]):
        with empty_bus(guarded) as bus:
            things = prepare(bus, tmp_path)
            for role in roles:
                monkeypatch.setenv("SCRATCHBUS_URL", guarded.url_of(role))
                before = log_length(bus)
                code = main(["--source", "me", "--json", *command.format(**things).split()])
                out, err = capsys.readouterr()
                assert "s3cr3t" not in out + err, role
                if role in COMMANDS[command]:
                    assert code == OK, err
                    assert all(json.loads(line) for line in out.splitlines()), role
                    continue
                assert code == ENGINE, role
                assert log_length(bus) == before, role
                (line,) = [line for line in err.splitlines() if line.startswith("scratchbus: ")]
                assert f"{role}:***@" in line
                assert "right role" in line


def test_a_reader_can_show_the_status(
    guarded: GuardedServer, bus: Bus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCRATCHBUS_URL", guarded.url_of("reader"))
    assert main(["status"]) == OK
    shown = capsys.readouterr().out
    assert "unknown, a server" in shown
    assert "unknown unknown" not in shown
    assert "s3cr3t" not in shown


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(guarded: GuardedServer) -> Iterator[Start]:
    """Return a function that starts the command line as a role; the processes are killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def new(role: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "SCRATCHBUS_URL": guarded.url_of(role)}
        command = launcher.command("-m", "scratchbus.cli", *arguments)
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield new
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_in_a_fresh_process(
    guarded: GuardedServer, things: dict[str, str], command: str, tmp_path: Path
) -> None:
    """In the test process, and in those that the launcher forks, everything is already imported."""
    environment = {"SCRATCHBUS_URL": guarded.url_of("admin"), "SCRATCHBUS_ARCHIVE_URL": str(tmp_path / "archive")}
    done = subprocess.run(
        [sys.executable, "-m", "scratchbus.cli", "--source", "me", *command.format(**things).split()],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == OK, done.stderr


@pytest.mark.parametrize("role", sorted(READS - COMMITS))
def test_up_exits_for_a_role_that_may_not_commit(bus: Bus, things: dict[str, str], start: Start, role: str) -> None:
    process = start(role, "up")
    out, err = process.communicate(timeout=60)
    assert process.returncode == ENGINE, err
    assert f"{role}:***@" in err.splitlines()[-1]
    assert "right role" in err.splitlines()[-1]
    assert "s3cr3t" not in out + err


def test_up_keeps_the_page_current_as_projector(bus: Bus, things: dict[str, str], start: Start) -> None:
    short = bus.page().add("observation", "short", ttl="1ms")
    process = start("projector", "up")
    eventually(lambda: bus.status().shards[0].lag == 0 and bus.page().history(short.id)[-1].kind == "status_changed")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == OK, err
    assert "s3cr3t" not in out + err


def test_watch_shows_the_page_to_a_reader(bus: Bus, things: dict[str, str], start: Start) -> None:
    process = start("reader", "watch", "--json")
    assert process.stdout is not None
    assert things["claimed"] in process.stdout.readline()
