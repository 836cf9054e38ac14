"""Facts on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from scratchbus import Bus
from scratchbus.errors import EngineUnreachable
from scratchbus.settings import shipped
from tests.edges.conftest import Cli

pytestmark = pytest.mark.real


@pytest.fixture
def scope(cli: Cli) -> tuple[str, str]:
    """The option for the test's own scope."""
    return "--scope", cli.page[:100]


def test_facts_are_asserted_queried_and_retracted(cli: Cli, scope: tuple[str, str]):
    old = cli.json("facts", "assert", *scope, "App", "runs_on", "Node 20", "--valid-at", "2025-01-01").document
    new = cli.json("facts", "assert", *scope, "App", "upgraded to", "Node 24", "--text", "we upgraded").document
    assert (new["relation"], new["source_text"], new["valid_at"]) == ("runs_on", "we upgraded", None)
    assert [each["id"] for each in cli.json("facts", "query", *scope).documents] == [new["id"]]
    assert cli("facts", "query", *scope, "--at", "2025-06-01").out.endswith("App -> runs_on -> Node 20\n")
    spans = cli.json("facts", "timeline", *scope, "app", "runs_on").documents
    assert [(span["state"], span["ended_by"]) for span in spans] == [("valid", new["id"]), ("valid", None)]
    why = cli("facts", "why", *scope, new["id"])
    assert "from the text: we upgraded" in why.out
    gone = cli.json("facts", "retract", *scope, new["id"], "--reason", "a joke").document
    assert gone["retraction"]["reason"] == "a joke"
    assert [each["id"] for each in cli.json("facts", "query", *scope).documents] == [old["id"]]
    known = cli.json("facts", "query", *scope, "--known-at", new["position"]).documents
    assert [each["id"] for each in known] == [new["id"]]
    assert cli.json("facts", "why", *scope, new["id"]).document["state"] == "retracted"


def test_facts_are_ingested_and_connected(cli: Cli, scope: tuple[str, str]):
    text = "Ann -> works on -> Heron\nHeron -> uses -> Docker\nstatus: green\n"
    ingested = cli.process("facts", "ingest", *scope, "-", "--subject", "Heron", "--json", given=text)
    assert len(ingested.documents) == 3
    assert cli("facts", "path", *scope, "ann", "docker").out.count("->") == 4
    near = cli.json("facts", "neighbours", *scope, "Ann", "--depth", "2").documents
    assert {each["entity"]: each["distance"] for each in near} == {"Heron": 1, "green": 2, "Docker": 2}
    assert cli("facts", "same", *scope, "Ann", "Dr. Ann").code == 0
    assert cli("facts", "path", *scope, "dr. ann", "docker").out.count("->") == 4
    assert cli("facts", "same", *scope, "Ann", "Dr. Ann", "--undo").code == 0
    assert cli("facts", "path", *scope, "dr. ann", "docker").err == "Nothing connects the two\n"
    assert cli("facts", "review", *scope).err == "No facts contest each other\n"
    assert "> Heron -> uses -> Docker" in cli("context", *scope).out


def test_distinct_facts_are_shown_once(cli: Cli, scope: tuple[str, str]):
    for _ in range(2):
        again = cli.json("facts", "assert", *scope, "App", "uses", "Docker").document
    assert len(cli.json("facts", "query", *scope).documents) == 2
    assert cli.json("facts", "query", *scope, "--distinct").documents == [again]


def test_contested_facts_are_shown_by_contest(cli: Cli, scope: tuple[str, str]):
    since = "--valid-at", "2026-01-01"
    for source, node in ("one", 22), ("two", 24):
        cli("facts", "assert", *scope, "App", "runs_on", f"Node {node}", *since, "--source", source)
        cli("facts", "assert", *scope, "App", "version", str(node), *since, "--source", source)
    shown = cli.json("facts", "contested", *scope, "app").documents
    assert [(each["contest"], each["relation"], each["object"], each["source"]) for each in shown] == [
        (1, "version", "22", "one"),
        (1, "version", "24", "two"),
        (2, "runs_on", "Node 22", "one"),
        (2, "runs_on", "Node 24", "two"),
    ]
    table = cli("facts", "contested", *scope, "App", "--relation", "runs_on").out.splitlines()
    assert [line.split(maxsplit=3)[2:] for line in table] == [
        ["one", "App -> runs_on -> Node 22"],
        ["two", "App -> runs_on -> Node 24"],
    ]
    nothing = cli("facts", "query", *scope, "--subject", "The App").err
    assert nothing == "No such fact is true\n"
    disputed = cli("facts", "query", *scope, "--subject", "App").err
    assert disputed == "No such fact is true; sources disagree, as `scratchbus facts contested` shows\n"
    assert cli("facts", "query", *scope, "--subject", "App", "--object", "node 22").err == disputed
    assert cli("facts", "query", *scope, "--subject", "App", "--object", "Deno").err == nothing
    before = cli("facts", "contested", *scope, "App", "--at", "2025-01-01")
    assert before.err == "No facts about it contest each other\n"


def test_invalid_facts_commands_have_their_exit_codes(cli: Cli, scope: tuple[str, str]):
    wrong = cli("facts", "assert", *scope, "App", "usess", "Docker")
    assert (wrong.code, "did you mean 'uses'" in wrong.err) == (5, True)
    assert cli("facts", "why", *scope, "fact_1").code == 3
    assert cli("facts", "why", *scope, "note_1").code == 5
    assert cli("facts", "retract", *scope, "fact_1").code == 2
    assert cli("facts", "query", *scope, "--limit", "0").code == 2


def test_relations_are_published_and_shown(cli: Cli, tmp_path: Path):
    assert {each["name"] for each in cli.json("facts", "relations").documents} >= {"uses", "runs_on"}
    bad = tmp_path / "bad.yaml"
    bad.write_text("relations: {uses: {values: some}}")
    refused = cli("facts", "push-relations", str(bad), "--source", "me")
    assert (refused.code, "'some' is not how many values" in refused.err) == (5, True)
    ours = str(shipped("relations.yaml"))  # the bus is shared by all tests
    assert "published the relations avoids" in cli("facts", "push-relations", ours, "--source", "me").out
    assert cli.json("facts", "push-relations", ours, "--source", "me").document["changed"] is False


def test_a_push_of_relations_reads_nothing_after_its_write(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    """A failure of the read said nothing of the write."""

    def fail(_: Bus) -> None:
        raise EngineUnreachable("the engine does not answer")

    monkeypatch.setattr(Bus, "relations", fail)
    pushed = cli.json("facts", "push-relations", str(shipped("relations.yaml")), "--source", "me").document
    assert {"runs_on", "same_as"} < set(pushed["relations"])
