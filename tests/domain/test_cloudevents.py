"""Parsing CloudEvents into observations to add."""

import base64
import hashlib
import json
from typing import Any

import pytest

from scratchbus import read_cloud_events
from scratchbus.errors import InvalidField

PLAIN: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "https://ci.example/a", "type": "build.failed"}


def read(**more: Any) -> dict[str, Any]:
    """Parse one CloudEvent with these attributes."""
    (parsed,) = read_cloud_events(json.dumps({**PLAIN, **more}))
    return parsed


def test_without_data_the_content_is_type_and_subject():
    named = hashlib.sha256(b"https://ci.example/a\x001").hexdigest()[:32]
    assert read() == {
        "type": "observation", "event_id": f"cloudevent:{named}", "source": "ci.example/a", "content": "build.failed",
        "context": {"cloudevent": PLAIN},
    }  # fmt: skip
    assert read(subject="main/7")["content"] == "build.failed main/7"


@pytest.mark.parametrize(
    ("data", "content", "metadata"),
    [
        ("Grün ist rot", "Grün ist rot", None),
        ({"content": "Build 7", "n": 7}, "Build 7", {"data": {"content": "Build 7", "n": 7}}),
        ({"content": " "}, '{"content": " "}', {"data": {"content": " "}}),
        ({"content": 7}, '{"content": 7}', {"data": {"content": 7}}),
        ({"name": "Grün"}, '{"name": "Grün"}', {"data": {"name": "Grün"}}),
        ([1, 2], "[1, 2]", {"data": [1, 2]}),
        (0, "0", {"data": 0}),
    ],
)
def test_the_content_comes_from_the_data(data, content, metadata):
    parsed = read(data=data)
    assert (parsed["content"], parsed.get("metadata")) == (content, metadata)
    assert parsed["context"] == {"cloudevent": PLAIN}  # the attributes without the data


def test_utf8_bytes_become_text_and_others_stay_base64():
    text, other = (base64.b64encode(data).decode() for data in ("Grün".encode(), b"\xff\x00"))
    assert read(data_base64=text)["content"] == "Grün"
    assert read(data_base64=other)["metadata"] == {"data": {"data_base64": other}}
    assert read(data_base64=other)["context"] == {"cloudevent": PLAIN}


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("https://ci.example/builds", "ci.example/builds"),
        ("http://ci.example/builds/", "ci.example/builds"),
        ("urn:uuid:6e8bc430", "urn-uuid-6e8bc430"),
        ("/my context#1", "my-context-1"),
        ("mailto:ops@example.org", "mailto-ops@example.org"),
        ("x" * 100, "x" * 64),
        ("://", "cloudevent"),
    ],
)
def test_the_source_name_is_derived_from_the_uri(uri, source):
    assert read(source=uri)["source"] == source


def test_the_event_id_is_derived_from_source_and_id():
    ids = {read(**each)["event_id"] for each in ({}, {"id": "2"}, {"source": "https://ci.example/b"})}
    assert len(ids) == 3
    assert read(data="another", time="2026-01-01T00:00:00Z")["event_id"] == read()["event_id"]


def test_an_added_event_of_another_bus_keeps_its_fields():
    data = {
        "type": "risk_alert", "content": "Disk full", "tags": ["disk"], "context": {"host": "a"}, "metadata": {"n": 1},
        "confidence": 0.7, "owner": "ops", "by": "watcher", "source": "df", "kind": "added", "priority": 90,
    }  # fmt: skip
    theirs = {"type": "scratchbus.added", "source": "urn:scratchbus:theirs"}
    parsed = read(**theirs, data=data)
    assert parsed.pop("event_id").startswith("cloudevent:")
    assert parsed == {
        "type": "risk_alert", "content": "Disk full", "tags": ["disk"], "metadata": {"n": 1}, "confidence": 0.7,
        "owner": "ops", "source": "df", "context": {"host": "a", "cloudevent": {**PLAIN, **theirs}},
    }  # fmt: skip
    assert read(**theirs, data={**data, "confidence": 0.0})["confidence"] == 0
    assert read(**theirs, data={**data, "source": None})["source"] == "watcher"
    assert read(**theirs, data={**data, "source": None, "by": None})["source"] == "urn-scratchbus-theirs"
    assert read_cloud_events(json.dumps({**PLAIN, "type": "scratchbus.updated"})) == []


def test_a_default_type_can_be_given():
    (parsed,) = read_cloud_events(json.dumps(PLAIN), "risk_alert")
    assert parsed["type"] == "risk_alert"


def test_the_input_is_one_event_a_list_or_json_lines():
    two = [{**PLAIN, "id": each} for each in "ab"]
    one, other = map(json.dumps, two)
    for text in (f"[{one}, {other}]", f"{one}\n{other}", f"\n{one}\n \n{other}\n"):
        assert [each["context"]["cloudevent"]["id"] for each in read_cloud_events(text)] == ["a", "b"]
    assert read_cloud_events("[]") == []


def test_line_separators_in_a_text_do_not_end_a_line():
    two = [{**PLAIN, "id": each, "data": "one\u2028two\x85three"} for each in "ab"]
    lines = "\r\n".join(json.dumps(each, ensure_ascii=False) for each in two)
    assert [each["content"] for each in read_cloud_events(lines)] == ["one\u2028two\x85three"] * 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"specversion": "0.3"}, "specversion is '0.3'; only 1.0 is supported"),
        ({"specversion": None}, "specversion is None"),
        *[({name: value}, f"{name} is missing") for name in ("id", "source", "type") for value in (None, "", 7)],
        ({"data_base64": "?"}, "data_base64 is not base64"),
        ({"data_base64": "QUJD\n"}, "data_base64 is not base64"),
        ({"data_base64": 7}, "data_base64 is not base64"),
    ],
)
def test_an_invalid_cloud_event_is_refused_by_number(wrong, says):
    text = "\n".join([json.dumps(PLAIN), json.dumps({**PLAIN, **wrong})])
    with pytest.raises(InvalidField, match=f"CloudEvent 2: {says}.*; nothing was written"):
        read_cloud_events(text)


def test_invalid_fields_are_refused_before_any_write():
    for data, says in (
        ({"content": 7}, "content"),
        ({"content": "x", "tags": [7]}, "tags"),
        ({"content": "x", "confidence": 2}, "confidence"),
    ):
        theirs = {**PLAIN, "type": "scratchbus.added", "source": "theirs", "data": {"type": "risk_alert", **data}}
        with pytest.raises(InvalidField, match=f"CloudEvent 2: {says}.*; nothing was written"):
            read_cloud_events(f"{json.dumps(PLAIN)}\n{json.dumps(theirs)}")


def test_the_traceparent_is_kept():
    assert read(traceparent="00-a-b-01")["traceparent"] == "00-a-b-01"
    assert "traceparent" not in read(traceparent=7)


@pytest.mark.parametrize("context", ["a", ["a"], 7])
def test_a_context_that_is_not_an_object_is_refused(context):
    theirs = {**PLAIN, "type": "scratchbus.added", "data": {"content": "x", "context": context}}
    with pytest.raises(InvalidField, match=r"CloudEvent 1: context: .* is not a JSON object; nothing was written"):
        read_cloud_events(json.dumps(theirs))


def test_base64_that_is_not_ascii_is_refused():
    with pytest.raises(InvalidField, match="CloudEvent 1: data_base64 is not base64; nothing was written"):
        read_cloud_events(json.dumps({**PLAIN, "data_base64": "ä"}))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"specversion": ' + "[" * 100_000])
def test_json_nested_too_deeply_is_refused(text):
    with pytest.raises(InvalidField, match=r"line 1: is not JSON: .*; nothing was written"):
        read_cloud_events(text)
