"""Bad input gets a one-line error that says what to do and the exit code of its class; nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from scratchbus import Bus
from scratchbus.daemon import exit_codes
from scratchbus.daemon.exit_codes import exit_code
from scratchbus.errors import (
    Behind,
    Conflict,
    EngineError,
    EngineUnreachable,
    InvalidInput,
    LogRewound,
    NotFound,
    PageFull,
    ScratchbusError,
    UnknownType,
)
from tests.edges.conftest import Cli, Result

pytestmark = pytest.mark.real

_WRITES = """
add update review resolve reopen refute clear-resolved claim claim-next release link erase
types/push note/add note/scratch note/update note/delete notepad/write notepad/append notepad/update
todo/write todo/add todo/set scratchpad/write context context/surface
"""
_NOBODY = "01M7YR8MB3MXGS4N6BSF10E4QF"
_ADD = ("add", "observation", "x", "--source", "me")


def _error_line(done: Result, code: int) -> str:
    """Return the error of a command, which must be one line and its only output."""
    assert done.code == code, done.err
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert line.startswith("scratchbus: ")
    return line


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), 3), (PageFull("main", 1), 4), (Conflict("x"), 4), (InvalidInput("x"), 5),
        (UnknownType("x", [], None), 5), (EngineUnreachable("x"), 6), (EngineError("x"), 6), (Behind("x"), 1),
        (LogRewound("x"), 4),
        (ScratchbusError("x"), 1), (KeyError("x"), 1),
    ],
)  # fmt: skip
def test_every_class_of_errors_has_its_exit_code(error: Exception, code: int):
    assert exit_code(error) == code


def test_the_exit_codes_have_their_documented_values():
    names = ("OK", "INTERNAL", "USAGE", "NOT_FOUND", "CONFLICT", "INVALID_INPUT", "ENGINE")
    assert [getattr(exit_codes, name) for name in names] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["lst"], "did you mean 'list'?"),
        (
            ["notes"],
            "no such command 'notes'. did you mean one of: 'note', 'notepad', 'types'? see `scratchbus --help`",
        ),
        (["list", "--typ", "x"], "no such option '--typ'. did you mean '--type'? see `scratchbus list --help`"),
        (["list", "--tags", "x"], "did you mean '--tag'?"),
        (["link", _NOBODY, "--action", "x"], "no such option '--action'; see `scratchbus link --help`"),
        (["update", _NOBODY, "--expected-version", "3"], "nothing to update; give --content"),
        (["add", "observation"], "missing argument 'CONTENT'"),
        (["add", "observation", "x"], "--source"),
        (["add", "observation", "x", "--source", "me", "--confidence", "high"], "--confidence"),
        (["add", "observation", "x", "--source", "me", "--context", "novalue"], "KEY=VALUE"),
        (["list", "--limit", "0"], "--limit"),
        (["claim", _NOBODY], "--by"),
        (["release", _NOBODY], "--by"),
        (["resolve"], "missing argument"),
        (["note", "list"], "missing option '--session'; give it, or set SCRATCHBUS_SESSION; see"),
        (["types", "pull"], "`scratchbus types --help`"),
        (["completion", "tcsh"], "bash"),
        (["list", "--limit", "x"], "'x' is not an integer; see"),
        (["note", "list", "--json=x"], "does not take a value; see `scratchbus note list --help`"),
        (["--config", "x.yaml", "demo"], "give --url too, or leave them out; see `scratchbus demo --help`"),
        (["list", "--confidence", "high"], "'high' is not a number; see"),
        (["show", "a\udcff"], "UTF-8"),
    ],
)
def test_a_wrong_command_line_is_explained(cli: Cli, arguments: list[str], hint: str):
    assert hint.lower() in _error_line(cli(*arguments), 2).lower()


@pytest.mark.parametrize(
    ("before", "after", "hint"),
    [
        ("--limit", [], "is not an integer; see `scratchbus list --help`"),
        ("a word", ["more"], "; see `scratchbus list --help`"),
    ],
)
def test_a_long_argument_is_not_repeated_whole(cli: Cli, before: str, after: list[str], hint: str):
    line = _error_line(cli("list", before, "x" * 60_000, *after), 2)
    assert len(line) < 1_000
    assert hint in line


@pytest.mark.parametrize(
    ("url", "code", "advice"),
    [
        ("redis://localhost:1/{}", 5, "; end the URL with one"), ("redis://{}:1", 5, "; write one of"),
        ("{}", 5, "; write one of"), ("embedded:/tmp/{}", 6, "; fix that, or choose another directory"),
    ],
)  # fmt: skip
def test_a_long_url_is_not_repeated_whole(cli: Cli, url: str, code: int, advice: str):
    line = _error_line(cli.anywhere("status", "--url", url.format("x" * 5_000)), code)
    assert len(line) < 1_000
    assert advice in line


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["add", "risk_alrt", "x", "--source", "me"], "did you mean 'risk_alert'"),
        (["add", "observation", " ", "--source", "me"], "content"),
        (["add", "observation", "x", "--source", "no spaces"], "source"),
        ([*_ADD, "--confidence", "2"], "confidence"),
        ([*_ADD, "--confidence", "nan"], "confidence"),
        ([*_ADD, "--ttl", "soon"], "ttl"),
        ([*_ADD, "--ttl", "1h", "--expires-at", "2h"], "ttl"),
        ([*_ADD, "--expires-at", "someday"], "ISO 8601"),
        ([*_ADD, "--times", "0"], "times"),
        ([*_ADD, "--status", "resolved"], "status"),
        ([*_ADD, "--evidence", "nope"], "id"),
        ([*_ADD, "--context", f"big={'x' * 70_000}"], "context"),
        ([*_ADD, "--event-id", "with space"], "event_id"),
        ([*_ADD, "--remind-on", "colour=red"], "remind_on"),
        ([*_ADD, "--page", "no spaces"], "page"),
        ([*_ADD, "--bus", "no:colons"], "bus"),
        (["show", "QQ"], "at least the last or first 6"),
        (["list", "--since", "someday"], "ISO 8601"),
        (["tail", "--after", "there"], "position"),
        (["tail", "--kind", "exploded"], "status_changed"),
        (["tail", "--page", "no spaces"], "page"),
        (["--url", "http://example.org", "list"], "redis://"),
        (["--url", "redis://localhost", "stop"], "embedded"),
        (["--config", "/nowhere.yaml", "list"], "/nowhere.yaml"),
        (["--config", "/nowhere.yaml", "run", "projector"], "scratchbus: /nowhere.yaml: cannot be read"),
        (
            ["--config", "/nowhere.yaml", "demo", "--url", "redis://localhost"],
            "scratchbus: /nowhere.yaml: cannot be read",
        ),
        (
            ["serve", "--listen", "0", "--no-open", "--cert-key", "k.pem"],
            "k.pem: a key needs its certificate; give --cert",
        ),
        (["--url", "nonsense", "serve", "--listen", "0", "--no-open"], "'nonsense' is not an engine URL"),
        (
            ["types", "check", "/nowhere.yaml"],
            "/nowhere.yaml: cannot be read: No such file or directory; check the path",
        ),
        (["types", "push", "/"], "/: cannot be read: Is a directory; check the path"),
        (["list", "--type", "risk_alrt"], "did you mean 'risk_alert'"),
        (["list", "--status", "done"], "use one of: active"),
        (["add", "reminder", "x", "--source", "me", "--remind-on", "type=risk_alrt"], "did you mean 'risk_alert'"),
    ],
)
def test_bad_input_is_explained_and_nothing_is_written(cli: Cli, arguments: list[str], hint: str):
    cli.add("there is one")
    assert hint in _error_line(cli(*arguments), 5)
    assert len(cli.json("tail").documents) == 1


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_of_a_daemon_needs_no_settings_file(cli: Cli, option: str):
    shown = cli.process("--config", "/nowhere.yaml", "run", "projector", option)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("Usage: ")


def test_an_invalid_types_file_is_reported_with_its_line(cli: Cli, tmp_path: Path):
    file = tmp_path / "types.yaml"
    file.write_text("types:\n  mine:\n    priorty: 3\n")
    for verb in ("check", "push"):
        assert f"{file}:3:5: types.mine.priorty: unknown key" in _error_line(cli("types", verb, str(file)), 5)


@pytest.mark.parametrize("arguments", [["show"], ["history"], ["resolve"], ["claim", "--by", "me"], ["link", "goal"]])
def test_a_missing_observation_is_reported(cli: Cli, arguments: list[str]):
    assert "list the page" in _error_line(cli(arguments[0], _NOBODY, *arguments[1:]), 3)


def test_a_short_id_without_a_match_is_not_found(cli: Cli):
    for arguments in (["show", "QQQQQQ"], ["resolve", "QQQQQQ"], ["list", "--after", "QQQQQQ"]):
        assert "no id on page" in _error_line(cli(*arguments), 3)


def test_a_conflict_is_explained_with_the_current_state(cli: Cli):
    id = cli.add()
    assert "version 1, not 7" in _error_line(cli("update", id, "--content", "y", "--expected-version", "7"), 4)
    cli.json("resolve", id)
    assert "from resolved it can become" in _error_line(cli("resolve", id), 4)
    assert "fence" in _error_line(cli("reopen", id, "--fence", "9"), 4)
    assert "is active" in _error_line(cli("clear-resolved", cli.add()), 4)
    cli("add", "observation", "once", "--source", "me", "--event-id", "e")
    assert "was used before" in _error_line(cli(*_ADD, "--event-id", "e"), 4)


def test_adding_to_a_full_page_that_refuses_is_a_conflict(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SCRATCHBUS_MAX_OBSERVATIONS", "1")
    monkeypatch.setenv("SCRATCHBUS_ON_FULL", "refuse")
    cli.add()
    assert "max_observations" in _error_line(cli(*_ADD), 4)


def test_several_ids_are_processed_until_one_is_refused(cli: Cli):
    first, second, third = cli.add(), cli.add(), cli.add()
    cli.json("resolve", second)
    done = cli("resolve", first, second, third)
    assert done.code == 4
    assert done.out.startswith(first)
    assert [cli.json("show", id).document["status"] for id in (first, third)] == ["resolved", "active"]


def test_an_unreachable_engine_is_reported(cli: Cli, tmp_path: Path):
    for url in ("redis://127.0.0.1:1", f"unix://{tmp_path}/none.sock"):
        for command in (["list"], list(_ADD), ["watch"], ["tail", "--follow"], ["up"]):
            assert "does not answer" in _error_line(cli("--url", url, *command), 6)


@pytest.mark.parametrize("distance", [-1, 0, 99_999])
def test_a_position_missing_from_the_log_is_reported(cli: Cli, bus: Bus, distance: int):
    cli.add(), cli.add()
    position = f"5-{bus.position().shards[0].seq + distance}"
    error = _error_line(cli("tail", "--after", position), 4)
    assert position in error
    assert "it was rewound or replaced, or the position is of another bus: read it from the start" in error


def test_status_reports_a_stopped_engine_and_starts_none(cli: Cli, tmp_path: Path):
    directory = tmp_path / "none"
    error = _error_line(cli("--url", f"embedded:{directory}", "status"), 6)
    assert f"no engine runs in {directory}" in error
    assert "`scratchbus up`" in error
    assert not directory.exists()


def test_an_error_shows_no_password(cli: Cli):
    error = _error_line(cli("--url", "redis://me:secret@127.0.0.1:1", "list"), 6)
    assert "secret" not in error


def test_an_internal_error_is_one_line_that_names_the_debug_switch(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("scratchbus.page.Page.active", broken)
    error = _error_line(cli("active"), 1)
    assert "oops" in error
    assert "SCRATCHBUS_DEBUG=1" in error
    monkeypatch.setenv("SCRATCHBUS_DEBUG", "1")
    assert "Traceback" in cli("active").err


def test_an_error_of_the_operating_system_names_the_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    unit = tmp_path / "systemd/user/scratchbus-lost.service"
    unit.parent.mkdir(parents=True)
    unit.symlink_to(tmp_path / "nowhere")
    assert f"scratchbus: {unit}: No such file or directory; check" in _error_line(
        cli.anywhere("systemd", "uninstall", "--user"), 1
    )


def test_standard_input_must_be_utf8(cli: Cli):
    done = cli.process("add", "observation", "-", "--source", "me", given=b"\xff\xfe")
    assert "UTF-8" in _error_line(done, 5)


def test_tail_warns_about_an_unknown_type(cli: Cli):
    done = cli("tail", "--type", "risk_alrt")
    assert (done.code, done.out) == (0, "")
    assert "did you mean 'risk_alert'" in done.err


@pytest.mark.parametrize("name", _WRITES.split())
def test_every_write_command_takes_an_event_id(cli: Cli, name: str):
    assert "--event-id" in cli(*name.split("/"), "--help").out


@pytest.mark.parametrize("verb", ["resolve", "archive"])
def test_a_retry_of_several_ids_has_the_same_output(cli: Cli, verb: str):
    ids = [cli.add(), cli.add()]
    first = cli(verb, *ids, "--event-id", f"{verb}-1", "--source", "me")
    assert first.code == 0
    assert cli(verb, *ids, "--event-id", f"{verb}-1", "--source", "me").out == first.out
