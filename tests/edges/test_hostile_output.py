"""Stored data cannot control a terminal or a spreadsheet: every output makes it harmless text."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from scratchbus import Bus
from scratchbus.cli.output import Cell, Column, Output
from scratchbus.daemon import command as daemon
from scratchbus.daemon.exit_codes import OK
from scratchbus.domain.position import Position
from scratchbus.engine.steps import ask
from scratchbus.errors import EngineUnreachable
from scratchbus.telemetry.terminal import escaped, visible
from tests import launcher
from tests.edges.conftest import Cli

pytestmark = pytest.mark.real

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egpj\u2066.exe\x7f\r"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
FORGED = "01M811KRSQH9EXE51TA2VBCPRQ"
FORBIDDEN = [char for char in HOSTILE if not char.isprintable()]


def assert_harmless(text: str) -> None:
    assert [char for char in FORBIDDEN if char in text.replace("\r\n", "\n")] == []


@pytest.fixture
def forged(cli: Cli, home: Path) -> tuple[Cli, str]:
    """A bus with a hostile `by` and `type` in an event that was added by hand, past all checks."""
    name = f"forged-{cli.page}"[:100]
    with Bus.connect(f"embedded:{home}", bus=name, source="test") as bus:
        bus.page(cli.page).add("observation", "content")
        keys = bus.core.log.keys(0)
        ((at, fields),) = bus.converse(ask(0, "XREVRANGE", keys.log, "+", "-", "COUNT", "1"))
        entry = dict(zip(fields[::2], fields[1::2], strict=True))
        body = json.loads(entry[b"event"])
        body["by"] = HOSTILE
        entry |= {
            b"id": b"forged",
            b"subject": FORGED.encode(),
            b"type": HOSTILE.encode(),
            b"event": json.dumps(body, separators=(",", ":")).encode(),
        }
        entry.pop(b"by", None)
        last = Position.parse(at.decode())
        position = f"{last.ms}-{last.seq + 1}"
        flat = [each for pair in entry.items() for each in pair]
        bus.converse(ask(0, "XADD", keys.log, position, *flat))
        bus.converse(ask(0, "SET", keys.tail, f"{position}|forged"))
    return cli, name


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output look like a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")


COMMANDS = ("tail", "tail --format jsonl", "tail --format csv", "list", "active", f"show {FORGED}")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", ["pipe", "json", "terminal"])
def test_forged_fields_are_printed_as_harmless_text(
    forged: tuple[Cli, str], monkeypatch: pytest.MonkeyPatch, command: str, how: str
) -> None:
    cli, name = forged
    if how == "terminal":
        on_a_terminal(monkeypatch)
    done = cli(*command.split(), "--bus", name, *(["--json"] if how == "json" else []))
    assert "owned" in done.out
    assert_harmless(_COLOURS.sub("", done.out + done.err))
    if how == "json" and "csv" not in command:
        assert all(isinstance(each, dict) for each in done.documents)


def test_contexts_and_notepads_do_not_control_the_terminal(cli: Cli, bus: Bus) -> None:
    bus.page(cli.page).add("observation", f"see {HOSTILE} here")
    bus.notepad(cli.page).write(f"one\n{HOSTILE}\n\ttwo ‌ن 👩‍🚀\r\nthree")
    shown = cli("context", "--session", cli.page).out
    assert "one" in shown
    assert_harmless(shown)
    read = cli("notepad", "read", "--session", cli.page).out
    assert read.startswith("one\n")
    assert "\n\ttwo ‌ن 👩‍🚀\r\nthree" in read
    assert_harmless(read)
    assert HOSTILE in cli.json("notepad", "read", "--session", cli.page).document["content"]


def test_every_output_method_prints_harmless_text(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column(name, lambda cell: cell) for name in ("a", "b")]
    row = [Cell(HOSTILE), Cell(HOSTILE, "", HOSTILE)]
    for is_terminal in (False, True):
        out = Output(no_color=True)
        out.is_terminal = is_terminal
        out.line(HOSTILE)
        out.note(HOSTILE)
        out.sentence(*row)
        out.table(columns, row, titled=True)
        out.row(columns, row[1])
        out.block({}, row, HOSTILE, [("name", row[0])])
        out.document({HOSTILE: HOSTILE})
    printed = capsys.readouterr()
    assert_harmless(printed.out + printed.err)


@pytest.mark.parametrize("width", ["40", "60"])
def test_a_word_too_long_for_a_card_stays_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    """So that a URL can be copied."""
    monkeypatch.setenv("COLUMNS", width)
    out, url = Output(no_color=True), "embedded:/home/ann/.local/share/scratchbus/x"
    out.is_terminal = True
    out.block({}, [Cell("a"), Cell("b")], "several words", [("url", Cell(url)), ("", Cell("more"))])
    shown = capsys.readouterr().out
    assert url in shown
    assert ("╭" in shown) == (width == "60")
    assert {"a · b", "several words", "more"} <= {line.strip(" │╭╮─") for line in shown.splitlines()}


@pytest.mark.parametrize(
    ("url", "is_framed"),
    [
        ("https://ci.example.com/builds/0123456789", True),
        ("https://ci.example.com/builds/0123456789/0123456789/log?x=1", False),
        ("https://例え.テスト/長長長長長長長長長長長長長長長長長長", False),  # two columns each
    ],
)
@pytest.mark.parametrize("where", ["title", "body", "details"])
def test_a_card_breaks_no_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str, is_framed: bool, where: str
) -> None:
    monkeypatch.setenv("COLUMNS", "56")
    out, words = Output(no_color=True), "many words " * 20
    out.is_terminal = True
    title, body, detail = (f"see {url}" if name == where else "short" for name in ("title", "body", "details"))
    out.block({}, [Cell(title)], f"{body}\n{words}", [("url", Cell(detail)), ("more", Cell(words))])
    shown = capsys.readouterr().out
    assert url in shown
    assert ("╭" in shown) == is_framed
    lines = [line.strip("│") for line in shown.splitlines() if not re.search("[╭╰]", line)]
    assert {word for line in lines for word in line.split()} - {"short"} <= {"many", "words", "see", "url", "more", url}
    assert all(len(line) <= 56 for line in lines if url not in line)
    (first,) = [index for index, line in enumerate(lines) if line.lstrip().startswith("more  ")]
    assert lines[first + 1].startswith(" " * lines[first].index("many"))


def test_escaping_keeps_the_value_of_json() -> None:
    document = json.dumps({"a": f"{HOSTILE}\U000e0041é"}, ensure_ascii=False)
    assert escaped(document).isprintable()
    assert json.loads(escaped(document)) == json.loads(document)
    assert "é" in escaped(document)


def test_visible_keeps_line_breaks_and_joiners() -> None:
    for text in ("a\n\tb", "a\r\nb", "a\u00a0b\u3000c", "👩‍🚀", "می‌خواهم", "é"):
        assert visible(text) == text
    assert visible("a\rb\x0bc\u2028d\ufeff") == "a�b�c�d�"


# -- daemons ---------------------------------------------------------------------------------------------------------

_LOGS = """\
import sys
import structlog
from scratchbus.daemon.runtime import configure_logging
sys.stderr.isatty = lambda: {is_terminal}
configure_logging("info")
structlog.get_logger().info("seen", reason={hostile!r}, name="plain{hostile!r}")
"""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_logs_do_not_control_the_terminal(is_terminal: bool) -> None:
    code = _LOGS.format(is_terminal=is_terminal, hostile=HOSTILE)
    logged = subprocess.run(launcher.command("-c", code), capture_output=True, check=True).stderr.decode()
    assert "seen" in logged
    for char in FORBIDDEN:
        if not (is_terminal and char == "\x1b"):  # its own colours
            assert char not in logged
    assert "\x1b]0" not in logged
    assert "\x1b[2J" not in logged


def test_daemon_errors_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    @daemon.daemon("tester")
    def failing(_: daemon.Daemon) -> None:
        raise EngineUnreachable(f"no {HOSTILE}")

    with pytest.raises(SystemExit):
        failing([])
    structlog.reset_defaults()
    assert_harmless(capsys.readouterr().err)


# -- spreadsheets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "＝1"])
def test_csv_escapes_formulas(cli: Cli, capsys: pytest.CaptureFixture[str], formula: str) -> None:
    Output().csv_row([formula, "plain", "2-1"])
    ((cell, *others),) = csv.reader(io.StringIO(capsys.readouterr().out))
    assert cell.startswith("'")
    assert others == ["plain", "2-1"]


def test_exported_events_have_their_formulas_escaped(cli: Cli) -> None:
    cli.add("x", "--event-id", '=HYPERLINK("http://x")')
    (row,) = csv.DictReader(io.StringIO(cli("tail", "--format", "csv").out))
    assert row["id"] == '\'=HYPERLINK("http://x")'
    assert json.loads(cli("tail", "--format", "jsonl").out)["id"] == '=HYPERLINK("http://x")'


# -- empty tables ----------------------------------------------------------------------------------------------------

EMPTY = [
    "active", "list", "tail", "history", "show --history", "dead-letters list", "note list", "note tags",
    "note history",
    "note search x", "notepad history", "notepad read", "todo read", "mcp token list", "log-archive list",
    "context surface x",
    "context exposure", "types list", "replay --until 1s", "diff --from 1s", "status",
]  # fmt: skip


@pytest.mark.parametrize("how", ["pipe", "terminal", "json"])
@pytest.mark.parametrize("command", EMPTY)
def test_a_command_with_nothing_to_list_succeeds(
    cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, how: str
) -> None:
    words, name = command.split(), f"empty-{cli.page}"[:90]
    if words[0] in ("note", "notepad", "todo"):
        words += ["--session", "new"]
    if command == "mcp token list":
        words += ["--tokens", str(tmp_path / "tokens.yaml")]
    if command == "log-archive list":
        (tmp_path / "archive").mkdir()
        words.append(str(tmp_path / "archive"))
    with Bus.connect(f"embedded:{home}", source="test"):
        pass  # some commands need a running engine and start none
    if words[0] in ("history", "show") or command == "context exposure":
        with Bus.connect(f"embedded:{home}", bus=name, source="test") as bus:
            words.append(bus.page(cli.page).add("observation", "content").id)
    if how == "terminal":
        on_a_terminal(monkeypatch)
    done = cli("--bus", name, *words, *(["--json"] if how == "json" else []))
    assert done.code == OK, done.err


@pytest.mark.parametrize("is_terminal", [False, True])
def test_an_empty_table_is_a_note_on_standard_error(capsys: pytest.CaptureFixture[str], is_terminal: bool) -> None:
    out = Output()
    out.is_terminal = is_terminal
    out.table([Column("a", Cell), Column("b", Cell)], [], empty="There are none")
    assert capsys.readouterr() == ("", "There are none\n")
