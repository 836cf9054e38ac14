"""The contexts of agents, on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from scratchbus import Bus
from scratchbus.daemon.exit_codes import INVALID_INPUT, NOT_FOUND, OK, USAGE
from tests.edges.conftest import Cli

pytestmark = pytest.mark.real


def test_a_context_is_printed_as_text(cli: Cli, bus: Bus):
    cli.add("The build is red")
    bus.notepad("s1").write("## Plan")
    shown = cli("context", "--session", "s1")
    assert shown.code == OK
    assert shown.out.startswith(f"## Session Notepad\n## Plan\n\n## Scratch Page: {cli.page}\n")
    assert shown.out.endswith("> The build is red\n")


def test_an_empty_context_says_so(cli: Cli):
    assert cli("context") == (OK, "", "The context is empty; name a --session, --scope or --agent, or another --page\n")
    assert cli("--json", "context").err == ""


def test_context_takes_its_session_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SCRATCHBUS_SESSION", cli.page)
    assert cli("context").out.startswith("## Session Notepad\n(empty")


def test_context_as_json_has_omissions_and_exposures(cli: Cli, bus: Bus):
    ids = [cli.add(f"number {number} " + "word " * 30) for number in range(20)]
    found = cli.json("context", "--budget", "400").document
    assert found["tokens"] <= found["budget"] == 400
    assert found["left_out"] == {"observations": 20 - len(found["exposed"])}
    assert set(found["exposed"]) < set(ids)
    assert found["position"] is None


def test_the_context_of_an_agent_includes_its_scratchpad(cli: Cli, home: Path):
    with Bus.connect(f"embedded:{home}", source="analyst") as analyst:
        analyst.scratchpad("analyst").write("Short answers.")
    assert "Short answers." in cli("context", "--agent", "analyst").out


def test_surface_finds_observations_relevant_to_a_question(cli: Cli, bus: Bus):
    cli.add("Three payments were declined")
    cli.add("The disk is full")
    shown = cli("context", "surface", "declined payment")
    assert "Three payments" in shown.out
    assert "The disk" not in shown.out
    assert cli("context", "surface", "zebra").err == "Nothing matches\n"


def test_exposure_lists_sessions_and_their_actions(cli: Cli, bus: Bus):
    id = cli.add("The build is red")
    assert cli("context", "exposure", id).err == "No one was recorded to have seen it\n"
    assert cli.json("context", "--session", "s1", "--record").document["position"]
    cli("link", id, "goal-17")
    shown = cli("context", "exposure", id[-8:])
    assert shown.out.splitlines()[0].startswith("s1 ")
    assert shown.out.splitlines()[1].endswith(" goal-17")
    document = cli.json("context", "exposure", id).document
    assert (document["seen"][0]["session"], document["actions"][0]["action"]) == ("s1", "goal-17")
    cli("refute", id, "--reason", "misread")
    assert "session:s1" in cli("show", id).out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["context", "--budget", "0"], USAGE),
        (["context", "--session", "## Notes"], INVALID_INPUT),
        (["context", "--session", "s1", "--budget", "5", "--strict"], INVALID_INPUT),
        (["context", "surface"], USAGE),
        (["context", "exposure", "01M7ZN5R6A6W2V7Q77DX4ZXNYF"], NOT_FOUND),
    ],
)
def test_an_invalid_context_command_gets_a_one_line_error(cli: Cli, arguments: list[str], code: int):
    done = cli(*arguments)
    assert done.code == code
    assert done.err.count("\n") == 1
