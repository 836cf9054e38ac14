"""The past on the command line: `replay`, `diff` and the moments that they accept."""

import re

import pytest

from scratchbus.daemon.exit_codes import INVALID_INPUT, USAGE
from tests.edges.conftest import Cli
from tests.waiting import PATIENCE

pytestmark = pytest.mark.real


def ids(done):
    return [each["id"] for each in done.documents]


def position(cli: Cli, id: str) -> str:
    return str(cli.json("show", id).document["position"])


def test_a_replay_shows_the_page_as_it_was(cli: Cli):
    first, second = cli.add("first"), cli.add("second", type="risk_alert")
    then = position(cli, second)
    cli("resolve", first)
    third = cli.add("third")
    assert ids(cli.json("replay", "--until", then)) == [second, first]
    assert [each["status"] for each in cli.json("replay", "--until", then).documents] == ["active", "active"]
    assert ids(cli.json("replay", "--at", then)) == [second, first]
    assert ids(cli.json("replay")) == ids(cli.json("replay", "--until", "now")) == [third, second, first]
    assert ids(cli.json("replay", "--limit", "1")) == [third]
    assert ids(cli.json("replay", "--until", then, "--active", "--limit", "1")) == [second]
    assert ids(cli.json("replay", "--active")) == [second, third]


def test_replay_in_a_pipe_shows_ages_as_of_that_moment(cli: Cli):
    id = cli.add("first")
    (line,) = cli("replay", "--until", position(cli, id)).out.splitlines()
    assert line.startswith(id)
    assert re.search(r" active +- +now +7d +test +- +first$", line)


def test_replay_before_the_first_event_is_empty(cli: Cli):
    cli.add("first")
    done = cli("replay", "--until", "1h ago")
    assert (done.code, done.out, done.err) == (0, "", "The page was empty\n")


def test_replay_without_a_source_shows_the_differences(cli: Cli):
    line = cli.add("a line")
    alert = cli.json("add", "risk_alert", "an alert", "--source", "noisy").document["id"]
    rests = cli.add("an answer", "--evidence", alert)
    cli("link", line, "goal", "--source", "noisy")
    found = cli.json("replay", "--without-source", "noisy").documents
    assert [(each["difference"], each["id"]) for each in found] == [
        ("changed", line), ("gone", alert), ("gone", rests),
    ]  # fmt: skip
    assert found[0]["fields"]["links"] == {"before": ["goal"], "after": []}
    done = cli("replay", "--without-source", "nobody")
    assert (done.code, done.out, done.err) == (0, "", "Nothing would be different\n")


def test_diff_compares_two_moments_field_by_field(cli: Cli):
    gone, changed = cli.add("gone"), cli.add("before", "--owner", "bob")
    cli("resolve", gone)
    start = position(cli, gone)
    cli("clear-resolved", gone)
    cli("update", changed, "--content", "after", "--owner", "")
    added = cli.add("added")
    found = cli.json("diff", "--from", start).documents
    assert [(each["difference"], each["id"]) for each in found] == [
        ("gone", gone), ("changed", changed), ("added", added),
    ]  # fmt: skip
    assert found[1]["fields"] == {
        "content": {"before": "before", "after": "after"},
        "owner": {"before": "bob", "after": None},
        "version": {"before": 1, "after": 2},
    }
    assert (found[0]["after"], found[2]["before"]) == (None, None)
    assert found[1]["after"]["content"] == "after"
    done = cli("diff", "--from", start, "--to", "now")
    assert done.out.splitlines() == [
        f"- {gone} observation resolved gone",
        f"~ {changed} observation after",
        "    content:      before → after",
        "    owner:        bob → none",
        "    version:      1 → 2",
        f"+ {added} observation active added",
    ]
    assert done.err == "1 added, 1 changed, 1 gone\n"
    assert cli.json("diff", "--from", start, "--to", start).out == ""


def test_a_diff_that_begins_after_its_end_is_refused(cli: Cli):
    start = position(cli, cli.add("first"))
    end = position(cli, cli.add("second"))
    done = cli("diff", "--from", end, "--to", start)
    assert (done.code, done.out) == (INVALID_INPUT, "")
    assert done.err == f"scratchbus: --from {end} is after --to {start}; exchange them\n"
    done = cli("diff", "--from", "now", "--to", "1h ago")
    assert (done.code, done.err) == (INVALID_INPUT, "scratchbus: --from now is after --to 1h ago; exchange them\n")
    assert cli("diff", "--from", "now").code == 0


def test_differences_are_coloured_on_a_terminal(cli: Cli):
    id = cli.add("before")
    start = position(cli, id)
    cli("update", id, "--content", "after")
    with cli.start("diff", "--from", start, terminal=True) as running:
        running.wait_for("changed")
        running.process.wait(PATIENCE)
        assert b"\x1b[31mbefore\x1b[0m" in running.seen
        assert b"\x1b[32mafter\x1b[0m" in running.seen


def test_a_difference_on_a_terminal_leaves_no_gap_for_a_hidden_status(cli: Cli):
    start = position(cli, cli.add("before"))
    cli.add("after")
    with cli.start("diff", "--from", start, "--no-color", terminal=True) as running:
        running.wait_for("1 added")
        assert b" observation after" in running.seen


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["replay", "--until", "soon"], INVALID_INPUT, "scratchbus: --until: 'soon' is neither a position nor a time"),
        (["diff", "--from", "soon"], INVALID_INPUT, "scratchbus: --from: 'soon' is neither a position nor a time"),
        (["diff", "--from", "1h", "--to", "5-"], INVALID_INPUT, "scratchbus: --to: '5-' is neither a position nor a"),
        (["replay", "--until", "2199-01-01T00:00:00Z"], INVALID_INPUT, "is in the future; the engine has"),
        (["replay", "--until", "9/1-1"], INVALID_INPUT, "is on shard 9; the bus has 1"),
        (["diff"], USAGE, "--from"),
        (["replay", "--without-source", "a", "--active"], USAGE, "leave out --active"),
        (["replay", "--without-source", "no source!"], INVALID_INPUT, "without_sources"),
    ],
)  # fmt: skip
def test_an_invalid_moment_is_explained(cli: Cli, arguments: list[str], code: int, message: str):
    cli.add("first")
    done = cli(*arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.count("\n") == 1
