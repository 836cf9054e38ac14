"""CloudEvents on the command line: exported for the official SDK, imported without duplicates."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from scratchbus.daemon import INVALID_INPUT, USAGE

TRACE = f"00-{7:032x}-{9:016x}-01"


def cloud_event(id: str = "1", data: Any = None, **attributes: Any) -> str:
    """Return a CloudEvent as the official SDK writes it."""
    given = {"id": id, "source": "https://ci.example/builds", "type": "example.build.failed", **attributes}
    if not isinstance(data, str | bytes | None):
        given.setdefault("datacontenttype", "application/json")
    written = JSONFormat().write(CloudEvent({"specversion": "1.0", **given}, data))
    return written.decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.json"


def test_the_official_sdk_reads_the_exported_log(cli):
    id = cli.add("The build is red", "--tag", "ci", type="risk_alert")
    cli("resolve", id, "--source", "test")
    lines = cli("tail", "--format", "cloudevents").out.splitlines()
    first, second = (JSONFormat().read(CloudEvent, line) for line in lines)
    assert (first.get_type(), second.get_type()) == ("scratchbus.added", "scratchbus.status_changed")
    assert first.get_source() == "urn:scratchbus:scratchbus"
    assert first.get_subject() == second.get_subject() == id
    data = first.get_data()
    assert isinstance(data, dict)
    assert data["content"] == "The build is red"
    assert first.get_extension("page") == cli.page


def test_cloud_events_are_imported_as_observations_once(cli, file):
    given = [
        cloud_event("1", {"content": "Build 7 failed", "branch": "main"}, traceparent=TRACE),
        cloud_event("2", {"branch": "main"}, subject="build/8"),
        cloud_event("3", "plain text"),
    ]
    file.write_text("\n".join(given))
    done = cli.json("import", str(file), "--format", "cloudevents", "--type", "risk_alert")
    assert done.document == {"observations": 3, "events": 3}
    again = cli.json("import", str(file), "--format", "cloudevents", "--type", "risk_alert")
    assert again.document == {"observations": 0, "events": 3}
    found = {each["context"]["cloudevent"]["id"]: each for each in cli.json("list").documents}
    assert {id: each["content"] for id, each in found.items()} == {
        "1": "Build 7 failed", "2": '{"branch": "main"}', "3": "plain text",
    }  # fmt: skip
    first = found["1"]
    assert (first["type"], first["source"]) == ("risk_alert", "ci.example/builds")
    assert first["context"]["cloudevent"]["type"] == "example.build.failed"
    assert first["metadata"] == {"data": {"content": "Build 7 failed", "branch": "main"}}
    assert cli.json("history", first["id"]).document["traceparent"] == TRACE


def test_each_page_gets_a_cloud_event_once(cli, file):
    file.write_text(f"{cloud_event('1', 'x')}\n{cloud_event('2', 'y')}")
    for page in (cli.page, f"{cli.page}-too"):
        for expected in (2, 0):
            done = cli.anywhere("--page", page, "--json", "import", str(file), "--format", "cloudevents")
            assert done.document == {"observations": expected, "events": 2}


def test_lists_single_events_and_base64_data_are_imported(cli, file):
    file.write_text(f"[{cloud_event('a', 'x')}, {cloud_event('b')}]")
    assert cli.json("import", str(file), "--format", "cloudevents").document["observations"] == 2
    file.write_text(
        json.dumps({**json.loads(cloud_event("c")), "data_base64": base64.b64encode("Grün".encode()).decode()})
    )
    assert cli.json("import", str(file), "--format", "cloudevents").document["observations"] == 1
    assert {each["content"] for each in cli.json("list").documents} == {"x", "example.build.failed", "Grün"}
    file.write_text(cloud_event("c", "another", source="urn:elsewhere"))  # ids are unique per source
    assert cli.json("import", str(file), "--format", "cloudevents").document["observations"] == 1


def test_observations_from_another_bus_keep_their_fields(cli, file):
    id = cli.add("Disk is full", "--tag", "disk", "--context", "host=a", "--confidence", "0.7", type="risk_alert")
    cli("resolve", id, "--source", "test")
    file.write_text(cli("tail", "--format", "cloudevents").out)
    done = cli.anywhere("--page", f"{cli.page}2", "import", str(file), "--format", "cloudevents", "--json")
    assert done.document == {"observations": 1, "events": 1}
    copy = cli.anywhere("--page", f"{cli.page}2", "list", "--json").document
    assert (copy["type"], copy["content"], copy["tags"], copy["confidence"]) == (
        "risk_alert", "Disk is full", ["disk"], 0.7,
    )  # fmt: skip
    assert (copy["source"], copy["context"]["host"]) == ("test", "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"specversion": "0.3", "id": "1", "source": "a", "type": "b"}', "CloudEvent 1: specversion is '0.3'"),
        ('[{"specversion": "1.0", "source": "a", "type": "b"}]', "CloudEvent 1: id is missing"),
        ('{"specversion": "1.0", "id": "1", "source": "a", "type": "b", "data_base64": "?"}', "not base64"),
        ("[3]", "CloudEvent 1: 3 is not an object"),
        ("{}\n{", "line 2: is not JSON"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_an_invalid_cloud_event_is_refused_and_nothing_written(cli, file, text, message):
    good = cloud_event("good").encode() + b"\n" if isinstance(text, str) and text.startswith('{"spec') else b""
    file.write_bytes(good + (text if isinstance(text, bytes) else text.encode()))
    done = cli("import", str(file), "--format", "cloudevents")
    assert done.code == INVALID_INPUT
    assert message.replace("CloudEvent 1", "CloudEvent 2" if good else "CloudEvent 1") in done.err
    assert cli("list").out == ""


def test_an_unknown_type_is_refused_but_not_a_bad_traceparent(cli, file):
    theirs = {"type": "ticket", "content": "x", "by": "theirs"}
    file.write_text(f"{cloud_event('known', 'x')}\n{cloud_event('unknown', theirs, type='scratchbus.added')}")
    done = cli("import", str(file), "--format", "cloudevents")
    assert (done.code, "unknown observation type 'ticket'" in done.err, cli("list").out) == (INVALID_INPUT, True, "")
    file.write_text(json.dumps({**json.loads(cloud_event("untraced", "x")), "traceparent": "00-none"}))
    assert cli.json("import", str(file), "--format", "cloudevents").document["observations"] == 1


def test_import_refuses_invalid_type_options(cli, file):
    file.write_text(cloud_event())
    assert cli("import", str(file), "--type", "risk_alert").code == USAGE
    assert cli("import", str(file), "--format", "cloudevents", "--type", "nonesuch").code == INVALID_INPUT
