"""Maintenance on the command line: `rebuild`, `verify`, `repair`, `import`, `erase` and exports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scratchbus import Bus
from scratchbus.daemon.exit_codes import CONFLICT, INTERNAL, INVALID_INPUT, NOT_FOUND, OK, USAGE
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.keys import PageKeys
from tests.edges.conftest import Cli
from tests.inspection import project, send

pytestmark = pytest.mark.real


def test_rebuild_keeps_the_page(cli: Cli, bus: Bus):
    added = cli.add("one")
    done = cli.json("rebuild")
    assert done.document["events"] >= 1
    assert done.err == ""
    assert cli("rebuild").out.startswith("rebuilt from ")
    listed = cli.json("list").documents[0]
    assert (listed["id"], listed["content"]) == (added, "one")


def test_a_sound_bus_is_reported_as_sound(cli: Cli, bus: Bus):
    cli.add("one")
    project(bus)
    done = cli("verify")
    assert (done.code, done.out) == (OK, "")
    assert done.err.startswith("Everything is consistent: ")
    checked = cli.json("verify").document
    assert checked.keys() == {"kind", "events", "documents", "pages"}
    assert (checked["kind"], checked["events"] >= 1, checked["documents"] >= 1) == ("sound", True, True)


def test_verify_lists_findings_and_exits_with_1(cli: Cli, bus: Bus):
    id = cli.add("one")
    project(bus)
    keys = bus.core.log.keys(0)
    key = PageKeys(keys, cli.page, bus.converse(read_checkpoint(keys)).build).docs
    kept = send(bus, "HGET", key, id)
    send(bus, "HDEL", key, id)
    done = cli("verify")
    assert (done.code, done.out) == (INTERNAL, f"document {key} {id} is missing\n")
    assert done.err.startswith("1 finding in ")
    assert done.err.endswith("document: run `scratchbus rebuild`\n")
    (found,) = cli("verify", "--json").documents
    assert found == {"kind": "document", "where": f"{key} {id}", "what": "is missing"}
    send(bus, "HSET", key, id, kept)


@pytest.fixture
def foreign(cli: Cli, bus: Bus) -> Iterator[str]:
    """The id of an entry added by hand after the last event of the log."""
    cli.add("one")
    log = bus.core.log.keys(0).log
    id = send(bus, "XADD", log, "9999999999999-0", "colour", "r\x1bed").decode()
    yield id
    bus.repair()


def test_a_foreign_entry_is_reported_and_removed_by_repair(cli: Cli, foreign: str):
    refused = cli("add", "observation", "two", "--source", "test")
    assert (refused.code, refused.out, refused.err.count("\n")) == (CONFLICT, "", 1)
    assert foreign in refused.err
    assert "`scratchbus repair`" in refused.err
    assert [each["content"] for each in cli.json("list").documents] == ["one"]
    assert "1 entry behind the end" in cli("status").out
    assert cli.json("status").document["shards"][0]["foreign"] == 1
    assert cli("verify").out.startswith("foreign ")
    done = cli("repair")
    assert (done.code, done.out) == (OK, "removed shard 0 9999999999999-0 colour=r�ed\n")
    assert cli("add", "observation", "two", "--source", "test").code == OK
    again = cli("repair")
    assert (again.code, again.out, again.err) == (OK, "", "There is nothing to repair.\n")


def test_repair_prints_removed_entries_as_json(cli: Cli, foreign: str):
    assert cli.json("repair").document == {"shard": 0, "stream_id": foreign, "fields": {"colour": "r\x1bed"}}
    assert cli.json("repair").documents == []


def test_an_export_is_imported_into_a_new_bus(cli: Cli, tmp_path: Path):
    cli.add("naïve “quotes”, and a comma")
    exported = cli.anywhere("tail", "--format", "jsonl")
    file = tmp_path / "all.jsonl"
    file.write_text(exported.out)
    name = f"copy-of-{cli.page}"[:100]
    done = cli.anywhere("import", str(file), "--bus", name, "--json")
    count = len(exported.out.splitlines())
    assert done.document == {"events": count, "new": count, "bus": name}
    assert cli.anywhere("tail", "--format", "jsonl", "--bus", name).out == exported.out
    assert cli.anywhere("verify", "--bus", name).code == OK
    again = cli.anywhere("import", str(file), "--bus", name)
    assert again.out == f"imported 0 events into {name}; {count:,} {'were' if count > 1 else 'was'} there already\n"
    cli.add("a later one")
    file.write_text(cli.anywhere("tail", "--format", "jsonl").out)
    later = cli.anywhere("import", str(file), "--bus", name, "--json")
    assert later.document == {"events": count + 1, "new": 1, "bus": name}
    file.write_text("nonsense\n")
    refused = cli.anywhere("import", str(file), "--bus", f"another-{name}")
    assert (refused.code, refused.err.count("\n")) == (INVALID_INPUT, 1)
    assert "line 1: " in refused.err
    file.write_text("")
    empty = cli.anywhere("import", str(file), "--bus", f"another-{name}")
    assert (empty.code, empty.out) == (OK, f"imported 0 events into another-{name}\n")
    assert empty.err == f"{file} is empty: it is the export of an empty bus, or the export failed\n"
    assert cli.anywhere("import", str(tmp_path / "none")).code == USAGE


def test_tail_as_csv_has_a_header_and_a_row_per_event(cli: Cli):
    id = cli.add('naïve “quotes”, "commas"')
    (row,) = csv.DictReader(io.StringIO(cli("tail", "--format", "csv").out))
    assert (row["subject"], row["kind"], row["page"]) == (id, "added", cli.page)
    assert json.loads(row["event"])["content"] == 'naïve “quotes”, "commas"'


def test_erase_leaves_a_tombstone_in_the_history(cli: Cli):
    id = cli.add("private")
    cli("resolve", id)
    assert cli("erase", id).code == USAGE  # without a reason
    asked = ("--reason", "asked for", "--source", "test", "--yes")
    done = cli("erase", id, *asked)
    assert (done.code, done.out) == (OK, f"erased {id} 2 events\n")
    (tombstone,) = cli.json("history", id).documents
    assert (tombstone["kind"], tombstone["reason"], len(tombstone["positions"])) == ("erased", "asked for", 2)
    assert cli.json("erase", id, *asked).document == tombstone
    assert cli("show", id).code == NOT_FOUND
    assert "private" not in cli.anywhere("tail", "--format", "jsonl").out
    assert cli("history", id).out.count("asked for") == 1


def test_erase_needs_a_whole_id_a_source_and_a_confirmation(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    id, why = cli.add("private"), ("--reason", "asked for")
    for problem, arguments in (
        ("needs a source", (id, *why, "--yes")),
        ("add --yes", (id, *why, "--source", "test")),
    ):
        refused = cli("erase", *arguments)
        assert (refused.code, refused.out) == (USAGE, "")
        assert problem in refused.err
    assert cli("erase", id[-8:], *why, "--source", "test", "--yes").code == INVALID_INPUT
    with cli.start("erase", id, *why, "--source", "test", terminal=True) as running:
        running.wait_for(f"Erase {id} for good (observation: private)? [y/N]")
    assert cli("show", id).code == OK
