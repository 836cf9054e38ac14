"""Todo lists and scratchpads on the command line."""

from __future__ import annotations

import json
import os

import pytest

from scratchbus import Bus, Todo, TodoList
from scratchbus.daemon.exit_codes import INVALID_INPUT, USAGE
from tests.edges.conftest import Cli

pytestmark = pytest.mark.real


@pytest.fixture
def mine(cli: Cli) -> str:
    """The name of the test's own session and agent."""
    return cli.page[:100]


def test_a_todo_list_is_written_merged_and_read(cli: Cli, mine: str):
    todos = json.dumps([{"id": "1", "content": "survey"}, {"id": 2, "content": "fix", "status": "in_progress"}])
    written = cli.json("todo", "write", "--session", mine, todos).document
    assert written == {
        "session": mine,
        "todos": [
            {"id": "1", "content": "survey", "status": "pending"},
            {"id": "2", "content": "fix", "status": "in_progress"},
        ],
        "revision": 1,
        "summary": {"total": 2, "pending": 1, "in_progress": 1, "completed": 0, "cancelled": 0},
    }
    done = '[{"id": "1", "status": "completed"}]'
    merged = cli.json("todo", "write", "--session", mine, "--merge", done).document
    assert [item["status"] for item in merged["todos"]] == ["completed", "in_progress"]
    assert cli.json("todo", "read", "--session", mine).document == merged


def test_a_todo_list_is_printed_as_text(cli: Cli, mine: str):
    cli("todo", "set", "--session", mine, "1", "--content", "survey\nthe \x1b[31msheets", "--status", "in_progress")
    cli("todo", "set", "--session", mine, "2", "--content", "fix")
    cli("todo", "set", "--session", mine, "2", "--status", "cancelled")
    done = cli("todo", "read", "--session", mine)
    assert done.out == "[>] 1 survey the �[31msheets\n[-] 2 fix\n"
    assert done.err == "revision 3: 2 total, 1 in progress, 1 cancelled\n"


def test_todo_add_appends_under_the_next_number(cli: Cli, mine: str):
    cli("todo", "write", "--session", mine, '[{"id": 7, "content": "survey"}, {"id": "x", "content": "fix"}]')
    cli("todo", "add", "check", "--session", mine)
    added = cli.json("todo", "add", "report", "--session", mine, "--status", "in_progress").document
    assert [(each["id"], each["content"], each["status"]) for each in added["todos"]][2:] == [
        ("8", "check", "pending"), ("9", "report", "in_progress"),
    ]  # fmt: skip


def test_todo_add_with_an_event_id_appends_once(cli: Cli, mine: str):
    for _ in range(2):
        cli("todo", "add", "check", "--session", mine)
        once = cli.json("todo", "add", "report", "--session", mine, "--event-id", "step-1").document
        assert [each["id"] for each in once["todos"]] == ["1", "step-1"]
    found = cli.json("todo", "read", "--session", mine).document
    assert [each["id"] for each in found["todos"]] == ["1", "step-1", "2"]


def test_concurrent_todo_adds_are_all_kept(cli: Cli, mine: str, bus: Bus, monkeypatch: pytest.MonkeyPatch):
    plan, read, others = type(bus.todo(mine)), type(bus.todo(mine)).read, ["another", "a third"]

    def read_before_another(self: Todo) -> TodoList:
        found = read(self)
        if others:
            bus.todo(mine).write([{"id": str(len(found.todos) + 1), "content": others.pop()}], merge=True)
        return found

    monkeypatch.setattr(plan, "read", read_before_another)
    added = cli.json("todo", "add", "mine", "--session", mine).document["todos"]
    assert [each["content"] for each in added] == ["a third", "another", "mine"]


def test_todo_add_to_a_full_list_is_refused(cli: Cli, mine: str):
    cli("todo", "write", "--session", mine, json.dumps([{"id": id, "content": "x"} for id in range(256)]))
    for command in (("add", "y"), ("add", "y", "--event-id", "step-2"), ("set", "another", "--content", "y")):
        refused = cli("todo", *command, "--session", mine)
        assert (refused.code, refused.out) == (INVALID_INPUT, "")
        assert "the list is full, with 256 items" in refused.err
    assert cli("todo", "set", " 7 ", "--content", "y", "--session", mine).code == 0


def test_an_unknown_todo_status_is_a_usage_error(cli: Cli, mine: str):
    refused = cli("todo", "set", "--session", mine, "1", "--content", "survey", "--status", "done")
    assert refused.code == USAGE
    assert "'in_progress'" in refused.err


def test_a_new_todo_list_is_empty(cli: Cli, mine: str):
    done = cli("todo", "read", "--session", mine)
    assert (done.code, done.out, done.err) == (0, "", "revision 0: nothing to do\n")


def test_todo_inject_prints_the_block_for_a_compaction(cli: Cli, mine: str):
    assert cli("todo", "inject", "--session", mine).out == ""
    assert cli.json("todo", "inject", "--session", mine).document == {"session": mine, "text": None}
    cli("todo", "set", "--session", mine, "1", "--content", "survey")
    block = "[Your active task list was preserved across context compression]\n- [ ] 1. survey (pending)"
    assert cli("todo", "inject", "--session", mine).out == block + "\n"


def test_todo_write_reads_standard_input(cli: Cli, mine: str):
    done = cli.process("todo", "write", "--session", mine, "-", "--json", given='[{"id": "1", "content": "piped"}]\n')
    assert done.document["todos"][0]["content"] == "piped"


@pytest.mark.parametrize(
    ("todos", "message"),
    [
        ("[", "todos: '[' is not JSON"),
        ("{}", "todos: {} is not a list of items"),
        ("null", "todos: null is not a list of items"),
        ('[{"content": "x"}]', "todos[0].id: is missing"),
        ('[{"id": "1"}]', "is new and has no content"),
    ],
)
def test_an_invalid_todo_list_is_refused(cli: Cli, mine: str, todos: str, message: str):
    refused = cli("todo", "write", "--session", mine, todos)
    assert (refused.code, refused.out) == (5, "")
    assert message in refused.err


def test_todo_needs_a_valid_session(cli: Cli):
    assert cli("todo", "read").code == 2
    assert cli("todo", "read", "--session", "no spaces").code == 5


def test_a_scratchpad_is_written_and_shown(cli: Cli, mine: str):
    assert cli("scratchpad", "show", mine).out == ""
    done = cli("scratchpad", "write", mine, "Mondays\tonly.")
    assert done.out == "Scratchpad updated successfully.\n"
    assert cli("scratchpad", "show", mine).out == "Mondays\tonly.\n"
    assert cli.json("scratchpad", "show", mine).document == {
        "agent": mine,
        "content": "Mondays\tonly.",
        "revision": 1,
    }
    assert cli.json("scratchpad", "write", mine, "").document == {"agent": mine, "characters": 0, "revision": 2}
    again = cli.json("scratchpad", "write", mine, "again", "--revision", "0")  # of an empty one
    assert (again.code, again.document["revision"]) == (0, 3)
    refused = cli("scratchpad", "write", mine, "x", "--revision", "1")
    assert (refused.code, "has changed since revision 1" in refused.err) == (4, True)
    assert cli.json("scratchpad", "show", mine).document["content"] == "again"
    assert cli("scratchpad", "write", mine, "").code == 0
    assert cli.json("scratchpad", "show", mine).document["content"] == ""


def test_whoami_shows_the_agent_and_its_scratchpad(cli: Cli, mine: str):
    empty = cli("scratchpad", "whoami", mine).out
    assert f"You are {mine}, a subagent." in empty
    assert "\n## Your Scratchpad\n\n_Your scratchpad is empty." in empty
    cli("scratchpad", "write", mine, "Mondays only.")
    assert cli.json("scratchpad", "whoami", mine).document["text"].endswith("## Your Scratchpad\n\nMondays only.")


@pytest.mark.parametrize("command", [("show",), ("whoami",), ("write", "x")])
def test_the_scratchpad_of_another_agent_is_403(cli: Cli, mine: str, command: tuple[str, ...]):
    name, *rest = command
    refused = cli("scratchpad", name, mine, *rest, "--source", "reviewer")
    assert (refused.code, refused.out) == (5, "")
    assert "403 Unauthorized" in refused.err
    assert refused.err.count("\n") == 1


def test_people_have_no_scratchpad(cli: Cli, mine: str, monkeypatch: pytest.MonkeyPatch):
    cli("scratchpad", "write", mine, "Mondays only.")
    monkeypatch.setenv("SCRATCHBUS_KIND", "person")
    assert cli("scratchpad", "show", mine).out == ""
    assert cli("scratchpad", "whoami", mine).out == f"You are {mine}, a person.\n"
    assert cli("scratchpad", "write", mine, "x").code == 5


def test_a_scratchpad_that_is_too_long_is_refused(cli: Cli, mine: str):
    refused = cli.process("scratchpad", "write", mine, "-", given="x" * 10_001)
    assert refused.code == 5
    assert "Scratchpad content exceeds maximum length of 10000 characters" in refused.err


def test_tail_describes_todo_scratchpad_and_run_events(cli: Cli, mine: str):
    speak = ("--source", mine)
    cli("todo", "write", "--session", mine, *speak, '[{"id": "1", "content": "survey"}, {"id": "2", "content": "fix"}]')
    cli("todo", "set", "--session", mine, "2", "--status", "completed", *speak)
    cli("todo", "write", "--session", mine, "[]", *speak)
    cli("scratchpad", "write", mine, "Mondays\nonly.")
    cli("scratchpad", "write", mine, "")
    with Bus.connect(os.environ["SCRATCHBUS_URL"], source=mine) as bus:
        bus.end_task(bus.begin_task(mine, "survey"), "six sheets")
        with bus.run(mine, "fix", ask=lambda _: "null") as run:
            run.done()
    shown = [
        line.split(mine)[-1].strip()
        for page in (f"session:{mine}", f"agent:{mine}")
        for line in cli.anywhere("tail", "--page", page).out.splitlines()
    ]
    assert shown == [
        "[ ] 1 survey · [ ] 2 fix", "changed: [x] 2 fix", "cleared", "survey", "six sheets",
        "Mondays only.", "cleared", "completed after 1 step: fix",
    ]  # fmt: skip
