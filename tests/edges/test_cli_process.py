"""The command line in processes: pipes, terminals, signals, start times and help."""

from __future__ import annotations

import inspect
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from scratchbus import Bus, Facts, NewObservation, Page
from scratchbus.cli import main
from scratchbus.cli.event_view import log_printer
from scratchbus.cli.invocation import Invocation
from scratchbus.cli.root import root
from scratchbus.cli.shell import run_command
from tests.edges.conftest import PROGRAM, ROOT, Cli
from tests.waiting import PATIENCE

pytestmark = pytest.mark.real

COLD = (sys.executable, "-m", "scratchbus.cli")
"""The command line, started as users start it."""

_IMPORTS = "import pydantic.main, click, asyncio, json"

_HEAVY = {"redis", "pydantic", "rich", "structlog", "apscheduler", "yaml", "asyncio"}


def test_processes_share_an_observation(cli: Cli):
    """The whole life of an observation, each step in a process of its own."""
    id = cli.process("add", "risk_alert", "Fraud ring", "--source", "fraud_detector").out.strip()
    assert len(id) == 26
    assert cli.process("active").out.startswith(id)
    claimed = cli.process("claim", id[-8:], "--by", "executor-1").out.split()
    assert claimed[:3] == [id, "1", "executor-1"]
    assert cli.process("resolve", id[-6:].lower()).code == 4
    assert cli.process("link", id, "block:4711", "--fence", "1").code == 0
    assert cli.process("resolve", id, "--fence", "1", "--reason", "card blocked").code == 0
    shown = cli.process("show", id, "--history")
    assert "resolved: card blocked" in shown.out
    assert [line.split()[3] for line in shown.out.partition("\n\n")[2].splitlines()] == [
        "added", "claimed", "linked", "status_changed",
    ]  # fmt: skip
    assert cli.process("clear-resolved", id).code == 0
    assert cli.process("show", id).code == 3


# -- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_help_takes_less_than_100_milliseconds():
    def seconds() -> float:
        process = os.posix_spawn(COLD[0], [*COLD, "--help"], os.environ, file_actions=_SILENT)
        used = os.wait4(process, 0)[2]
        return used.ru_utime + used.ru_stime  # CPU time, so that other processes do not count

    assert any(seconds() < 0.1 for _ in range(20))


_SILENT = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]


@pytest.mark.parametrize("columns", ["60", "80", "90", "100", "200"])
def test_the_generated_help_is_that_of_the_commands(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["--help"]) == run_command(["--help"]) == 0
    printed = capsys.readouterr().out
    assert printed == 2 * printed[: len(printed) // 2]


def test_help_imports_no_heavy_modules():
    code = (
        "import sys; from scratchbus.cli import main; from scratchbus.cli.shell import run_command;"
        "main(['add', '--help']); main(['--help']); run_command(['--help']);"
        f"print(sorted({_HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "command",
    [
        "add", "update", "active", "list", "show", "history", "watch", "tail", "claim", "claim-next", "release", "link",
        "review", "resolve", "archive", "reopen", "clear-resolved", "up", "status", "stop", "types", "demo",
        "completion",
    ],
)  # fmt: skip
def test_every_command_has_help(cli: Cli, command: str):
    done = cli(command, "--help")
    assert done.code == 0
    assert "Common options:" in done.out or command in ("types", "completion")
    assert command in cli("--help").out


def test_version_prints_a_version_number(cli: Cli):
    assert re.fullmatch(r"scratchbus \d+\.\d+\.\d+\S*\n", cli("--version").out)


# -- pipes -----------------------------------------------------------------------------------------------------------


def test_a_pipe_gets_plain_columns_with_whole_ids(cli: Cli):
    ids = [cli.add("short"), cli.add("A long text, " * 30, "--times", "3", type="pending_confirmation")]
    lines = cli.process("list", FORCE_COLOR="1").out.splitlines()
    assert [line.split()[0] for line in lines] == ids[::-1]
    assert lines[0].split()[1:5] == ["70", "pending_confirmation", "active", "×3"]
    assert lines[1].split()[1:5] == ["20", "observation", "active", "-"]
    assert lines[0].endswith(("A long text, " * 30).strip())
    starts = {line.index(text) for line, text in zip(lines, ("A long", "short"), strict=True)}
    assert len(starts) == 1
    assert not set("\x1b│╭─") & set("".join(lines))


def test_a_closed_pipe_ends_the_command_quietly(cli: Cli, home: Path):
    with Bus.connect(f"embedded:{home}", source="test", max_observations=10_000) as bus:
        bus.page(cli.page).add_many([NewObservation(type="observation", content="x" * 400) for _ in range(1_000)])
    for command in (["list", "--all"], ["tail"], ["list", "--all", "--json"], ["demo"]):
        with subprocess.Popen(
            [*PROGRAM, "--page", cli.page, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(PATIENCE) == 0
            assert process.stderr.read() == b""


def run_in_shell(cli: Cli, command: str, program: Sequence[str] = PROGRAM) -> tuple[int, str, str]:
    """Run a shell command in which `$scratchbus` is the command line; return its exit code and output."""
    script = command.replace("$scratchbus", shlex.join([*program, "--page", cli.page]))
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # some machines set it
    done = subprocess.run(  # noqa: S602  # shells are under test
        script, shell=True, cwd=ROOT, env=usual, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["list", "list --json", "--help", "tail"])
def test_unwritable_output_is_one_error(cli: Cli, command: str):
    cli.add("one")
    full = "scratchbus: No space left on device; check the disk, the terminal and the files\n"
    assert run_in_shell(cli, f"$scratchbus {command} > /dev/full") == (1, "", full)


@pytest.mark.parametrize("as_json", ["", " --json"])
def test_a_result_that_cannot_be_printed_is_in_the_error(cli: Cli, as_json: str):
    code, out, err = run_in_shell(cli, f"$scratchbus add observation one --source a{as_json} > /dev/full")
    (added,) = cli.json("list").documents
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "No space left on device; the write was made, with the result " in err
    assert added["id"] in err


@pytest.mark.parametrize("command", ["context", "context surface one"])
def test_a_context_that_cannot_be_printed_was_written_only_if_recorded(cli: Cli, command: str):
    cli.add("one")
    plain = run_in_shell(cli, f"$scratchbus {command} --session s1 > /dev/full")
    assert plain == (1, "", "scratchbus: No space left on device; check the disk, the terminal and the files\n")
    _, _, err = run_in_shell(cli, f"$scratchbus {command} --session s1 --record --source a > /dev/full")
    assert "No space left on device; the write was made, with the result " in err


@pytest.mark.parametrize("as_json", ["", " --json"])
def test_a_token_that_cannot_be_printed_is_not_kept(cli: Cli, tmp_path: Path, as_json: str):
    file = shlex.quote(str(tmp_path / "tokens.yaml"))
    added = run_in_shell(cli, f"$scratchbus mcp token add laptop --agent a --tokens {file}{as_json} > /dev/full")
    assert added == (1, "", "scratchbus: No space left on device; check the disk, the terminal and the files\n")
    assert cli("mcp", "token", "list", "--tokens", str(tmp_path / "tokens.yaml")).out == ""


_EACH = """
import sys
from scratchbus.cli import main
for command in sys.argv[2:]:
    assert main(["--page", sys.argv[1], *command.split()]) == 0
    print(end="\\0")
"""
"""Runs commands one after the other in one process, whose output has the encoding that it starts with."""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:surrogateescape"])  # the last one: of LC_ALL=C
def test_characters_that_the_output_cannot_encode_are_escaped(cli: Cli, encoding: str):
    cli.json("resolve", cli.add("日本"))  # a tail has an arrow too
    commands = ("list", "list --json", "tail --format csv", "tail --format jsonl", "tail")
    done = subprocess.run(
        [sys.executable, "-c", _EACH, cli.page, *commands],
        cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    outputs = dict(zip(commands, done.stdout.split("\0"), strict=False))
    for command in commands:
        assert r"\u65e5\u672c" in outputs[command], command
    assert json.loads(outputs["list --json"])["content"] == "日本"
    exported = [json.loads(line) for line in outputs["tail --format jsonl"].splitlines()]
    assert exported == cli("tail", "--format", "jsonl").documents


def test_closed_streams_act_like_the_null_device(cli: Cli):
    assert run_in_shell(cli, "$scratchbus add observation one --source a >&-", COLD) == (0, "", "")
    assert run_in_shell(cli, "$scratchbus show ZZZZZZ 2>/dev/full", COLD) == (3, "", "")
    assert run_in_shell(cli, "$scratchbus show ZZZZZZ 2>&-", COLD) == (3, "", "")
    assert run_in_shell(cli, "$scratchbus list <&- >&- 2>&-", COLD) == (0, "", "")
    assert [one["content"] for one in cli.json("list").documents] == ["one"]


@pytest.mark.parametrize(
    ("command", "hint"),
    [("list", "add TYPE CONTENT --source NAME`"), ("active", "list`")],
)
def test_an_empty_page_hints_at_the_next_command(cli: Cli, command: str, hint: str):
    done = cli.process(command)
    assert (done.code, done.out) == (0, "")
    assert f"`scratchbus --page {cli.page} {hint}" in done.err
    assert cli.process(command, "--json") == (0, "", "")


# -- terminals -------------------------------------------------------------------------------------------------------


def test_a_terminal_gets_colour_and_short_ids(cli: Cli):
    id = cli.add("Fraud", "--context", "card=4711", type="risk_alert")
    with cli.start("list", terminal=True) as listed:
        listed.wait_for("Fraud")
        assert id[-8:].encode() in listed.seen
        assert id.encode() not in listed.seen
        assert b"\x1b[1;31mrisk_alert" in listed.seen
    with cli.start("show", id[-8:], "--history", terminal=True) as shown:
        shown.wait_for("added")
        for part in (id, "╭", "4711", "test"):
            shown.wait_for(part)
    with cli.start("list", "--no-color", terminal=True) as plain:
        plain.wait_for("Fraud")
        assert b"31m" not in plain.seen


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_the_last_column_of_a_table_has_room(cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: str):
    cli.add("no backup of the old server", "--source", "s" * 128)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    for command in (["list"], ["recall", "backup"]):  # a long source; long reasons, and the page's name
        lines = cli(*command).out.splitlines()
        assert len(lines) == 2
        assert "no backup" in lines[1], lines


def test_a_narrow_table_shows_enough_of_each_id_to_find_it(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    ids = [cli.add("no backup of the old server"), cli.add("neither of the new one")]
    cli("claim", ids[0], "--by", "executor-of-the-payments-department")
    cli("review", ids[1])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for columns in ("40", "50", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        rows = re.sub(r"\x1b\[\d*m", "", cli("list", "--no-color").out).splitlines()[1:]
        assert [row.split()[0] for row in rows] == [id[-8:] for id in reversed(ids)]
        assert all(len(row.rstrip()) <= int(columns) for row in rows)


@pytest.mark.parametrize("columns", ["60", "72", "80", "90", "100"])
def test_a_row_with_a_long_id_shows_what_happened(bus: Bus, cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: str):
    bus.preferences(cli.page).remember("tea", "green")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    (row,) = cli.anywhere("--page", f"knowledge:{cli.page}", "tail", "--no-color").out.splitlines()
    assert "tea: green" in row


def test_content_does_not_control_the_terminal(cli: Cli):
    id = cli.add("evil \x1b]0;title\x07 \x1b[2J text", "--owner", "bob", "--context", "a=\x9b31m")
    for command in (["list"], ["show", id, "--history"], ["tail"], ["active"]):
        with cli.start(*command, terminal=True) as shown:
            shown.wait_for("text")
            assert not re.search(rb"\x1b\]0|\x1b\[2J|\xc2\x9b", shown.seen)


# -- tail, watch, up -------------------------------------------------------------------------------------------------


def test_tail_follows_until_ctrl_c(cli: Cli):
    first = cli.add("before")
    with cli.start("tail", "--follow", "--json") as tail:
        tail.wait_for(first)
        second = cli.add("after")
        tail.wait_for(second)
        assert tail.interrupt() == 130
        events = [json.loads(line) for line in tail.seen.decode().splitlines()]
    assert [event["subject"] for event in events] == [first, second]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_rows_of_a_tail_line_up(bus: Bus, cli: Cli, is_terminal: bool):
    page = bus.page(f"knowledge:{cli.page}")
    page.add("observation", "said: one")
    bus.preferences(cli.page).remember("tea", "green")
    page.add("observation", "said: two")
    with cli.start("--page", page.name, "tail", terminal=is_terminal) as tail:
        tail.wait_for("two")
        rows = [row for row in re.sub(r"\x1b\[[0-9;]*m", "", tail.seen.decode()).splitlines() if row]
    assert len(rows) == 3
    assert len({row.index(" test ") for row in rows}) == 1, rows


def test_a_tail_on_a_terminal_has_a_heading_for_each_day(
    bus: Bus, cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    bus.page(cli.page).add("observation", "one")
    (event,) = bus.events(pages=[cli.page])
    noon = datetime.now(UTC).astimezone().replace(tzinfo=None, hour=12, minute=0, second=0, microsecond=0)
    days = [(noon - timedelta(days=ago)).astimezone() for ago in (40, 1, 1, 0)]  # each with the offset of its own day
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    show = log_printer(Invocation())
    for seq, day in enumerate(days):
        show(event.model_copy(update={"ms": round(day.timestamp()) * 1_000, "seq": seq}))
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert [line.strip() for line in lines if not line.startswith("12:00:00  added ")] == [
        f"{day:%A, %Y-%m-%d}" for day in (days[0], days[1], days[3])
    ]
    assert len(lines) == 7


def test_watch_prints_a_line_for_each_change_into_a_pipe(cli: Cli):
    first = cli.add("before")
    with cli.start("watch") as watch:
        watch.wait_for(f"open            {first}")
        second = cli.add("after")
        watch.wait_for(f"added           {second}")
        cli.json("resolve", second)
        watch.wait_for(f"status_changed  {second}")
        cli.json("clear-resolved", second)
        watch.wait_for(f"cleared         {second}")
        assert watch.interrupt() == 130
        assert b"Traceback" not in watch.seen


def test_watch_as_json_has_the_change_and_the_observation(cli: Cli):
    with cli.start("watch", "--json") as watch:
        cli.add("before")
        watch.wait_for("\n")
        id = cli.add("after")
        watch.wait_for(id)
        watch.interrupt()
        changes = [json.loads(line) for line in watch.seen.decode().splitlines()]
    assert changes[-1]["change"] == "added"
    assert changes[-1]["content"] == "after"


def test_watch_goes_on_after_a_note_on_the_page_of_a_session(bus: Bus, cli: Cli):
    session = cli.page
    page = bus.page(f"session:{session}")
    first = page.add("observation", "before").id
    with cli.start("--page", page.name, "watch") as watch:
        watch.wait_for(f"open            {first}")
        note = bus.notes(session).add("Q3 is off").note.id
        watch.wait_for(f"note_added      {note}")
        second = page.add("observation", "after").id
        watch.wait_for(f"added           {second}")


def test_watch_restores_the_terminal_on_sigterm(cli: Cli):
    with cli.start("watch", terminal=True) as watch:
        watch.wait_for("Nothing is open")
        assert watch.interrupt(signal.SIGTERM) == 143
        watch.wait_for("\x1b[?1049l")


def test_watch_shows_only_the_observations_that_fit(cli: Cli):
    for number in range(40):
        cli.add(f"thing {number}")
    cli.json("review", cli.add("Urgent", type="risk_alert"))
    with cli.start("watch", terminal=True) as watch:
        watch.wait_for("and more")
        watch.wait_for("Urgent")
        watch.wait_for("the most urgent ones")
        assert b"thing 0 " not in watch.seen


def test_watch_redraws_the_page_on_a_change(cli: Cli):
    cli.add("First thing", type="risk_alert")
    with cli.start("watch", terminal=True) as watch:
        watch.wait_for("First thing")
        cli.add("Second thing")
        watch.wait_for("Second thing")
        watch.wait_for("2 observations open")
        assert watch.interrupt() == 130
        assert b"\x1b[?1049l" in watch.seen, "the terminal is not restored"
        assert b"Traceback" not in watch.seen


@pytest.mark.slow
def test_ctrl_c_during_imports_exits_with_130(monkeypatch: pytest.MonkeyPatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scratchbus.cli.startup.uncollected", interrupted)
    assert main(["active"]) == 130


@pytest.mark.parametrize("with_signal", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_up_runs_projector_and_expirer_until_a_signal(cli: Cli, tmp_path: Path, with_signal: signal.Signals):
    own = ("--url", f"embedded:{tmp_path / 'up'}")
    try:
        with cli.start(*own, "up") as up:
            up.wait_for(str(tmp_path / "up"))
            up.wait_for("projector, expirer")
            id = cli.json(*own, "add", "observation", "short", "--source", "me", "--ttl", "300ms").document["id"]
            up.wait_for("events fell due")
            kinds = [each["kind"] for each in cli.json(*own, "history", id).documents]
            assert kinds == ["added", "status_changed"]
            assert cli.json(*own, "status").document["shards"][0]["rejected"] == 0
            assert up.interrupt(with_signal) == 0
            assert b"Traceback" not in up.seen
    finally:
        cli(*own, "stop")


@pytest.mark.slow
def test_up_in_memory_says_that_it_is_alone(cli: Cli):
    with cli.start("--url", f"memory://{cli.page}", "up") as up:
        up.wait_for("no other process sees this bus")
        up.wait_for('"started"')
        assert up.interrupt() == 0


@pytest.mark.slow
def test_up_continues_after_the_engine_dies(cli: Cli, tmp_path: Path):
    own = ("--url", f"embedded:{tmp_path / 'up'}")
    try:
        with cli.start(*own, "up") as up:
            cli.json(*own, "add", "observation", "short", "--source", "me", "--ttl", "300ms")
            up.wait_for("events fell due")
            os.kill(cli.json(*own, "status").document["engine_pid"], signal.SIGKILL)
            up.seen = b""
            cli.json(*own, "add", "observation", "short", "--source", "me", "--ttl", "300ms")
            up.wait_for("events fell due")
            assert up.interrupt() == 0
    finally:
        cli(*own, "stop")


def test_up_as_json_shows_the_engine(cli: Cli, home: Path):
    with cli.start("up", "--json", program=COLD) as up:
        up.wait_for("\n")
        first = json.loads(up.seen.decode().splitlines()[0])
        assert (first["url"], first["pid"]) == (f"embedded:{home}", up.process.pid)


# -- groups ----------------------------------------------------------------------------------------------------------


def _groups() -> Iterator[click.Group]:
    waiting: list[click.Group] = [root]
    while waiting:
        group = waiting.pop()
        yield group
        context = click.Context(group)
        members = (group.get_command(context, name) for name in group.list_commands(context))
        waiting += [each for each in members if isinstance(each, click.Group)]


def test_no_command_is_listed_twice():
    for group in _groups():
        with group.make_context("it", [], resilient_parsing=True) as context:
            listed = re.findall(r"^  ([a-z-]+)  +\S", group.get_help(context), re.MULTILINE)
        assert sorted(listed) == sorted(set(listed)), group.name


def test_every_list_command_has_the_alias_ls():
    found = 0
    for group in _groups():
        context = click.Context(group)
        assert "ls" not in group.list_commands(context)
        if "list" in group.list_commands(context):
            found += 1
            assert group.get_command(context, "ls") is group.get_command(context, "list")
    assert found >= 8


@pytest.mark.parametrize(("group", "shows"), [("todo", "read"), ("notepad", "read"), ("facts", "query")])
def test_list_and_show_are_aliases_of_the_read_command(group: str, shows: str):
    context = click.Context(root)
    found = root.get_command(context, group)
    assert isinstance(found, click.Group)
    assert all(found.get_command(context, name) is found.commands[shows] for name in ("ls", "list", "show"))


def test_options_without_effect_are_refused(cli: Cli):
    for arguments in (("status", "--page", "x"), ("active", "--source", "x"), ("stop", "--bus", "x")):
        refused = main(arguments)
        assert refused == 2, arguments
    assert "--source" in cli("add", "--help").out
    assert "--instance" in cli("resolve", "--help").out
    assert "--page" not in cli("verify", "--help").out


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "scratchbus", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, subprocess.check_output([*COLD, "--version"], cwd=ROOT, text=True))


@pytest.mark.alone
@pytest.mark.parametrize("terminal", [False, True])
def test_active_takes_less_than_300_milliseconds(cli: Cli, terminal: bool):
    """The limit grows on a slow machine, measured by imports that take 0.12 s on an idle one."""
    cli.add("short")

    def seconds(*command: str) -> float:
        reader, writer = pty.openpty()
        output = writer if terminal else os.open(os.devnull, os.O_WRONLY)
        files = [(os.POSIX_SPAWN_DUP2, output, 1)]
        process = os.posix_spawn(sys.executable, [sys.executable, *command], os.environ, file_actions=files)
        _, status, used = os.wait4(process, 0)
        for each in {reader, writer, output}:
            os.close(each)
        assert status == 0
        return used.ru_utime + used.ru_stime  # CPU time, so that other processes do not count

    active = (*COLD[1:], "--page", cli.page, "active")
    assert any(seconds(*active) < max(0.3, 0.3 * seconds("-c", _IMPORTS) / 0.12) for _ in range(10))


@pytest.mark.parametrize(
    ("command", "option", "method"),
    [
        ("claim", "ttl", Page.claim), ("claim-next", "ttl", Page.claim_next), ("facts query", "limit", Facts.query),
        ("facts neighbours", "limit", Facts.neighbours), ("facts neighbours", "depth", Facts.neighbours),
        ("facts timeline", "limit", Facts.timeline), ("list", "limit", Page.list), ("add", "times", Page.add),
    ],
)  # fmt: skip
def test_help_shows_the_defaults_of_the_methods(cli: Cli, command: str, option: str, method: object):
    usual = inspect.signature(method).parameters[option].default  # type: ignore[arg-type]  # it is callable
    shown = f"{usual:,}" if isinstance(usual, int) else usual
    assert re.search(rf"--{option}\b[^\[]*\[default:\s+{shown}\]", cli(*command.split(), "--help").out)
