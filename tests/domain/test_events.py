"""Events: a closed list of kinds, immutable, unchanged by encoding and decoding."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from scratchbus.domain.events import ENVELOPE, EVENTS, SCHEMA, Added, AnyEvent, Claimed, Linked, Updated
from scratchbus.errors import CodeTooOld
from scratchbus.eventlog.codec import Poison, decode_entry, encode_body
from scratchbus.eventlog.raw_entries import is_batch_end

anything = TypeAdapter(AnyEvent)

KINDS = {
    "added", "updated", "repeated", "status_changed", "claimed", "released", "lapsed", "linked", "due", "cleared",
    "types_changed", "erased", "context_rendered",
    "notepad_written", "notepad_edited", "note_added", "note_updated", "note_deleted",
    "session_spawned", "session_started", "session_ended",
    "todo_written", "task_begun", "task_ended", "scratchpad_written", "run_ended",
    "preference_remembered", "preference_forgotten",
    "fact_asserted", "fact_retracted",
    "turn_appended", "turns_compacted", "file_written", "file_removed", "text_written", "text_edited", "text_deleted",
    "item_put", "item_used", "item_deleted", "relations_changed",
}  # fmt: skip

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(text, json_values, max_size=3)
added = st.builds(
    Added,
    content=text,
    by=text,
    source=st.none() | text,
    owner=st.none() | text,
    status=st.sampled_from(["active", "pending_review"]),
    confidence=st.floats(0, 1),
    context=objects,
    metadata=objects,
    tags=st.lists(text, max_size=3),
    ttl=st.none() | st.integers(1, 10**12),
    expires_at=st.none() | st.just(datetime(2100, 1, 1, 1, 2, 3, 456_000, UTC)),
    times=st.integers(1, 10**6),
    dedupe_key=st.none() | text,
)
linked = st.builds(Linked, by=text, action=text, cause=st.none() | text, traceparent=st.none() | text)


def entry(event, **more):
    fields = {"id": "e1", "subject": "S", "page": "main", "kind": event.kind, "type": "t", "batch": "1/1", "prev": ""}
    flat = [part for name, value in (fields | more).items() for part in (name.encode(), value.encode())]
    return [b"5-7", [*flat, b"event", encode_body(event)]]


def test_the_kinds_are_a_closed_list():
    assert EVENTS.keys() == KINDS
    assert {cls.model_fields["kind"].default for cls in EVENTS.values()} == KINDS


@given(added | linked)
def test_an_event_survives_encoding_and_decoding(event):
    from_the_log = {*ENVELOPE, "at"}
    read = decode_entry(entry(event), 3)
    assert read.model_dump(exclude=from_the_log) == event.model_dump(exclude=from_the_log)
    assert (read.id, read.page, read.subject, read.type, read.position) == ("e1", "main", "S", "t", (5, 7, 3))


def test_a_body_has_its_schema_first_and_no_defaults():
    body = encode_body(Added(content="x", by="tool", id="e1", page="main", subject="S"))
    assert json.loads(body) == {"v": SCHEMA, "content": "x", "by": "tool"}
    assert body.startswith(b'{"v":%d,' % SCHEMA)


def test_the_union_is_discriminated_by_kind():
    assert isinstance(anything.validate_python({"kind": "linked", "by": "x", "action": "a"}), Linked)
    with pytest.raises(ValidationError):
        anything.validate_python({"kind": "teleported", "by": "x"})


def test_events_are_immutable():
    event = Linked(by="x", action="a")
    with pytest.raises(ValidationError):
        event.action = "b"  # type: ignore[misc]  # that is the point


def test_an_update_changes_only_mutable_fields():
    Updated(by="x", changes={"content": "y", "expires_at": None})
    for changes in ({"id": "y"}, {"confidence": "high"}, {"tags": "a"}):
        with pytest.raises(ValidationError):
            Updated.model_validate({"by": "x", "changes": changes})


def test_a_newer_schema_raises_code_too_old():
    newer = entry(Linked(by="x", action="a"))
    newer[1][-1] = b'{"v":3,"by":"x"}'
    with pytest.raises(CodeTooOld, match="event 5-7 has schema version 3, this code knows 2; upgrade scratchbus"):
        decode_entry(newer, 0)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"v":1}', b'{"v":"2"}', b'{"v":1,"by":5}', b'{"v":0,"by":"x"}', b"\xff"]
)
def test_poison_has_a_reason_and_a_position(body):
    broken = entry(Linked(by="x", action="a"))
    broken[1][-1] = body
    with pytest.raises(Poison) as poison:
        decode_entry(broken, 3)
    assert poison.value.reason
    assert poison.value.position == (5, 7, 3)
    assert (poison.value.envelope["page"], poison.value.envelope["subject"]) == ("main", "S")


def test_batch_ends_are_recognized():
    event = Linked(by="x", action="a")
    assert [is_batch_end(entry(event, batch=batch)) for batch in ("1/1", "1/3", "2/3", "3/3")] == [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("owner", ["", "a|b", "a#b", "x", "a" * 65])
def test_the_owner_of_a_claim_must_be_a_token(owner: str):
    with pytest.raises(ValidationError):
        Claimed(by="x", holder="x", ttl=1, owner=owner)
