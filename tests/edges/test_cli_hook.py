"""The hooks of Claude Code: their answers, and that no failure stops the agent."""

from __future__ import annotations

import json
import os
import socket
import time
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus
from scratchbus.cli import hook, main
from scratchbus.cli.hook_marks import Marks
from scratchbus.errors import EngineUnreachable
from tests.test_start import imported_by

NAMES = ("session-start", "user-prompt", "pre-compact", "stop")


class Hooks:
    """The hooks on an engine of the test's own; `bus` is the agent's."""

    def __init__(self, url: str, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.url, self._capture, self._patch = url, capture, patch
        self.bus = Bus.connect(url, source="claude")

    def raw(self, name: str, given: bytes, *options: str) -> str:
        """Run a hook, which must exit with 0; return its output, and keep its standard error as `err`."""
        self._patch.setattr("sys.stdin", TextIOWrapper(BytesIO(given)))
        self._capture.readouterr()
        code = main(["hook", name, "--url", self.url, "--session", "s1", "--agent", "claude", *options])
        out, self.err = self._capture.readouterr()
        assert code == 0
        assert "internal error" not in self.err
        return out

    def __call__(self, name: str, *options: str, **asked: Any) -> Any:
        """Run a hook that prints JSON or nothing, and no error."""
        out = self.raw(name, json.dumps({"session_id": "c1", **asked}).encode(), *options)
        assert not self.err
        return json.loads(out) if out else None


@pytest.fixture
def hooks(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Hooks:
    monkeypatch.setenv("SCRATCHBUS_HOME", str(tmp_path))
    return Hooks(f"memory://{request.node.name}", capsys, monkeypatch)


@pytest.mark.parametrize("source", ["startup", "resume", "clear", "compact"])
def test_a_session_starts_with_its_context(hooks: Hooks, source: str):
    hooks.bus.notepad("s1").write("# Plan\n- [ ] survey the sheets\n")
    id = hooks.bus.page().add("risk_alert", "Fraud ring").id
    answer = hooks("session-start", source=source, hook_event_name="SessionStart")
    output = answer["hookSpecificOutput"]
    assert output["hookEventName"] == "SessionStart"
    assert "survey the sheets" in output["additionalContext"]
    assert "Fraud ring" in output["additionalContext"]
    assert [seen.session for seen in hooks.bus.page().exposure(id).seen] == ["s1"]


def test_hooks_provide_the_preferences_and_facts_of_their_scopes(hooks: Hooks):
    hooks.bus.preferences("ada").remember("quotes", "always double")
    hooks.bus.facts("ada/shop").assert_fact("shop", "runs_on", "Node 24")
    hooks.bus.preferences("eve").remember("quotes", "always single")
    for answer in (
        hooks("session-start", "--knowledge", "ada, ada/shop")["hookSpecificOutput"]["additionalContext"],
        hooks.raw("pre-compact", b'{"session_id": "c1"}', "--knowledge", "ada,ada/shop"),
    ):
        assert "always double" in answer
        assert "shop -> runs_on -> Node 24" in answer
        assert "single" not in answer
    assert "always" not in str(hooks("session-start"))


def test_a_source_in_the_environment_does_not_replace_the_agent(hooks: Hooks, monkeypatch: pytest.MonkeyPatch):
    hooks.bus.scratchpad("claude").write("The bank answers on Mondays.")
    monkeypatch.setenv("SCRATCHBUS_SOURCE", "ann")
    assert "on Mondays" in hooks("session-start")["hookSpecificOutput"]["additionalContext"]
    assert "403" in hooks.raw("stop", b'{"session_id": "c1"}', "--source", "eve") + hooks.err
    assert hooks("stop")["decision"] == "block"


def test_the_output_fits_the_limit_of_claude_code(hooks: Hooks):
    hooks.bus.notepad("s1").write("much " * 10_000)
    for number in range(20):
        hooks.bus.page().add("observation", f"{number} " + "more " * 100)
    context = hooks("session-start")["hookSpecificOutput"]["additionalContext"]
    assert 9_000 < len(context) <= hook.MAX_OUTPUT
    assert len(hooks.raw("pre-compact", b'{"session_id": "c1"}')) <= hook.MAX_OUTPUT + 1


def test_user_prompt_adds_relevant_memories(hooks: Hooks):
    hooks.bus.notes("s1").add("The staging database is read-only on Mondays")
    hooks.bus.notes("s1").add("Lunch is at noon")
    answer = hooks("user-prompt", prompt="migrate the databases in staging")
    assert answer["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    assert "read-only on Mondays" in answer["hookSpecificOutput"]["additionalContext"]
    assert "Lunch" not in answer["hookSpecificOutput"]["additionalContext"]
    assert hooks("user-prompt", prompt="xylophone") is None


def test_pre_compact_shows_the_memories_outside_the_summary(hooks: Hooks):
    hooks.bus.notepad("s1").write("Totals are in row 40")
    text = hooks.raw("pre-compact", json.dumps({"session_id": "c1", "trigger": "auto"}).encode())
    assert text.startswith("The notepad below")
    assert "Do not repeat them in the summary" in text
    assert "Totals are in row 40" in text
    assert not hooks.err


def test_stop_asks_once_per_session(hooks: Hooks):
    answer = hooks("stop", stop_hook_active=False)
    assert answer["decision"] == "block"
    assert "help your future self" in answer["reason"]
    assert "update_scratchpad" in answer["reason"]
    assert hooks("stop", stop_hook_active=True) is None
    assert hooks("stop", stop_hook_active=False) is None
    assert hooks("stop", session_id="c2")["decision"] == "block"


@pytest.mark.parametrize("active", [True, "true", 1, None, {}])
def test_stop_asks_nothing_while_a_stop_hook_is_active(hooks: Hooks, active: Any):
    assert hooks("stop", stop_hook_active=active) is None


def test_the_first_answer_becomes_the_scratchpad(hooks: Hooks):
    hooks("stop")
    reply = 'Sure.\n```json\n{"scratchpad": "The bank answers on Mondays only."}\n```'
    hooks("stop", stop_hook_active=True, last_assistant_message=reply)
    assert hooks.bus.scratchpad("claude").read() == "The bank answers on Mondays only."
    hooks("stop", stop_hook_active=True, last_assistant_message='{"scratchpad": "Something later"}')
    assert hooks.bus.scratchpad("claude").read() == "The bank answers on Mondays only."


def test_an_answer_that_cannot_be_stored_is_reported_and_taken_later(hooks: Hooks, monkeypatch: pytest.MonkeyPatch):
    hooks("stop")
    asked = {"session_id": "c1", "stop_hook_active": True, "last_assistant_message": '{"scratchpad": "Mondays only"}'}

    def unreachable(*_: object, **__: object) -> None:
        raise EngineUnreachable("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr("scratchbus.memory.scratchpad.Scratchpad.write", unreachable)
        assert hooks.raw("stop", json.dumps(asked).encode()) == ""
    assert "the answer of the agent was not stored: " in hooks.err
    assert "connection refused" in hooks.err
    for _ in range(2):
        hooks("stop", **asked)
        assert hooks.bus.scratchpad("claude").read() == "Mondays only"
    assert len(hooks.bus.scratchpad("claude").history()) == 1


def test_an_unrequested_answer_changes_nothing(hooks: Hooks):
    hooks("stop", stop_hook_active=True, last_assistant_message='{"scratchpad": "x"}')
    assert hooks.bus.scratchpad("claude").read() == ""


def test_stop_asks_nothing_if_its_mark_cannot_be_stored(hooks: Hooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCRATCHBUS_HOME", str(tmp_path / "file"))
    assert hooks.raw("stop", b'{"session_id": "c1"}') == ""
    assert "the agent goes on without it" in hooks.err


def test_marks_expire_after_a_month(tmp_path: Path):
    marks = Marks(tmp_path)
    assert marks.add("old")
    (file,) = tmp_path.iterdir()
    os.utime(file, (time.time() - 31 * 24 * 3600,) * 2)
    assert marks.add("new")
    assert not marks.add("new")
    assert marks.add("old")


def test_the_session_defaults_to_that_of_claude_code(hooks: Hooks, monkeypatch: pytest.MonkeyPatch):
    hooks.bus.notepad("c7").write("of c7")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b'{"session_id": "c7"}')))
    assert main(["hook", "session-start", "--url", hooks.url]) == 0
    assert "of c7" in hooks._capture.readouterr().out


GARBAGE = (
    b"",
    b"not JSON",
    b"\xff\xfe\x00\x01\x80",
    b"[]",
    b"null",
    b"17",
    b'{"session_id"',
    b"[" * 100_000,
    b'{"session_id": 7, "prompt": []}',
    b'{"session_id": "\\ud800", "prompt": "\\ud800", "stop_hook_active": []}',
    b'{"prompt": {"a": 1}, "stop_hook_active": "yes"}',
    b'{"session_id": "a b\\u0000/../..", "prompt": "\\u0000", "stop_hook_active": true}',
    b"1" * 5_000,
    b" " * (hook.MAX_INPUT + 1),
)


def test_a_hook_without_input_says_that_it_is_empty(hooks: Hooks):
    hooks.raw("stop", b"\n")
    assert "standard input is empty" in hooks.err


@pytest.mark.parametrize("given", GARBAGE, ids=lambda given: repr(given[:30]))
@pytest.mark.parametrize("name", NAMES)
def test_invalid_input_stops_no_agent(hooks: Hooks, name: str, given: bytes):
    out = hooks.raw(name, given)
    assert "block" not in out
    try:
        is_object = isinstance(json.loads(given), dict)
    except (ValueError, RecursionError):
        is_object = False
    assert is_object or (not out and "standard input is" in hooks.err)


@pytest.mark.parametrize("name", NAMES)
def test_an_unreachable_engine_stops_no_agent(hooks: Hooks, name: str):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else gets the port
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}"
        out = hooks.raw(name, b'{"session_id": "c1", "prompt": "x"}', "--url", url)
    assert not out
    assert "the agent goes on without it" in hooks.err


@pytest.mark.alone
def test_a_hook_gives_up_on_a_silent_engine(hooks: Hooks, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hook, "MAX_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1]}"
        begun = time.monotonic()
        assert hooks.raw("session-start", b'{"session_id": "c1"}', "--url", url) == ""
    assert time.monotonic() - begun < 4  # settings wait 5 s for one reply
    assert "took longer than" in hooks.err


def test_an_unknown_hook_is_said_in_one_sentence(hooks: Hooks):
    assert hooks.raw("nonsense", b"") == ""
    said = "scratchbus: no such command 'nonsense'; see `scratchbus hook --help`; the agent goes on without it\n"
    assert hooks.err == said


@pytest.mark.parametrize("options", [["--nonsense"], ["--budget", "x"], ["more", "words"], ["--config", "/nowhere"]])
def test_an_invalid_option_stops_no_agent(hooks: Hooks, options: list[str]):
    assert hooks.raw("stop", b'{"session_id": "c1"}', *options) == ""
    assert "the agent goes on without it" in hooks.err


@pytest.mark.parametrize("words", [["nonsense"], ["--nonsense"], []])
def test_an_unknown_hook_stops_no_agent(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["hook", *words]) == 0
    out, err = capsys.readouterr()
    assert not out
    assert err


def test_a_hook_imports_no_heavy_modules():
    code = "from scratchbus.cli import main; main(['hook', 'stop', '--url', 'memory://lean', '--agent', 'claude'])"
    names = imported_by(code, input='{"session_id": "c1", "stop_hook_active": true}')
    assert not names & {"rich", "structlog", "apscheduler", "prometheus_client", "mcp", "scratchbus.views"}
