"""Observations, and the arguments that make one."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from scratchbus import Claim, NewObservation, Observation
from scratchbus.domain.documents import document_of, shown_fields
from scratchbus.domain.events import Added
from scratchbus.domain.observation_models import UPDATABLE
from scratchbus.domain.values import moment
from scratchbus.errors import InvalidField, InvalidInput, UnknownField
from scratchbus.eventlog.stored_documents import decode_observation, decode_observations, encode_document
from scratchbus.projections.scratch_page import evolve

ONE = Observation(
    id="01ARZ3NDEKTSV4RRFFQ69G5FAV", page="main", type="t", content="é", source="tool", added_ms=1000, added_seq=1,
    ms=2000, seq=5, shard=3, version=2, tags=["a"], context={"n": 1}, expires_at=moment(60_123),
)  # fmt: skip


def test_times_and_positions_come_from_the_events():
    assert (ONE.created_at, ONE.updated_at) == (moment(1000), moment(2000))
    assert (ONE.position, ONE.added) == ((2000, 5, 3), (1000, 1, 3))
    assert ONE.is_open
    assert not ONE.model_copy(update={"status_class": "closed"}).is_open


def test_an_observation_is_immutable():
    with pytest.raises(ValidationError):
        ONE.content = "y"  # type: ignore[misc]  # that is the point


def test_observations_and_events_are_hashable():
    same = decode_observation(encode_document(ONE))
    newer = ONE.model_copy(update={"version": 3})
    assert {ONE, same} == {ONE}
    assert len({ONE, newer}) == 2
    event = Added(id="e", subject=ONE.id, content="x", by="me", context={"n": 1}, ms=1, seq=1)
    assert {event, event.model_copy()} == {event}


def test_positions_are_in_the_json_but_not_stored():
    assert (ONE.model_dump()["position"], ONE.model_dump()["added"]) == (ONE.position, ONE.added)
    dumped = ONE.model_dump(mode="json")
    assert (dumped["position"], dumped["added"]) == ("3/2000-5", "3/1000-1")
    assert b"position" not in encode_document(ONE)


FIELDS = [
    "id", "type", "content", "source", "owner", "status", "confidence", "context", "tags", "created_at", "updated_at",
    "expires_at", "metadata",
]  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ms": 1_795_386_035_607, "seq": 9, "version": 4, "shard": 3},
        {
            "expires_at": datetime(2027, 1, 1, tzinfo=UTC),
            "archive_at": datetime(2027, 1, 1, 1, 2, 3, 4_000, tzinfo=UTC),
        },
        {"claim": Claim(by="a", fence=2, until=datetime(2027, 1, 1, 0, 0, 0, 5_000, tzinfo=UTC), owner="o")},
        {
            "metadata": {"a": [1, {"b": None}]},
            "context": {"t": "x"},
            "links": ["goal"],
            "evidence": ["e"],
            "owner": "me",
        },
        {"status": "archived", "status_class": "final", "reason": "r", "reason_code": "expired", "damaged": True},
    ],
)
def test_a_document_equals_the_pydantic_dump(changes):
    added = Added(id="e", subject=ONE.id, page="main", type="t", content="x", by="me", ms=1_795_386_035_000, seq=1)
    observation = evolve(None, added).model_copy(update=changes)
    dumped = observation.model_dump(mode="json")
    document = document_of(observation)
    assert document == {name: dumped[name] for name in observation.shown()}
    assert list(document) == observation.shown()
    encoded = msgspec.json.decode(msgspec.json.encode(shown_fields(observation), enc_hook=to_jsonable_python))
    assert encoded == document
    document["context"]["mine"] = document["tags"].append("mine")
    assert document_of(observation)["context"] == observation.context == dumped["context"]


def test_repr_and_json_have_the_specified_fields_first():
    added = Added(id="e", subject=ONE.id, page="main", type="t", content="x", by="me", ms=1, seq=1)
    new = evolve(None, added)
    assert list(document_of(new)) == [*FIELDS, "page", "version", "position", "priority"]
    assert [name for name, _ in new.__repr_args__()] == [
        name for name, value in document_of(new).items() if value is not None
    ]
    assert repr(new).startswith(f"Observation(id={ONE.id!r}, type='t', content='x', source='me', status=")
    changed = new.model_copy(update={"version": 2, "ms": 2, "seq": 2, "links": ["goal-17"], "occurrences": 3})
    assert list(document_of(changed))[13:] == [
        "page",
        "version",
        "position",
        "priority",
        "occurrences",
        "links",
        "added",
    ]
    assert "links=['goal-17']" in repr(changed)
    assert "claim" not in repr(changed)


def test_an_observation_survives_storing():
    assert decode_observation(encode_document(ONE)) == ONE
    assert decode_observations([encode_document(ONE)] * 3) == [ONE] * 3
    assert decode_observations([]) == []


def test_unknown_fields_of_stored_documents_are_ignored():
    row = encode_document(ONE)[:-2] + b',"mood":"good"},"more"]'
    assert decode_observation(row) == ONE


def test_updatable_fields_exclude_fields_that_are_set_once():
    assert set(UPDATABLE) <= set(Observation.model_fields)
    assert not {"id", "created_at", "source", "page", "type"} & set(UPDATABLE)


def test_an_error_names_the_wrong_field():
    with pytest.raises(
        UnknownField, match="colour: unknown field; use one of: blocked_by, confidence, content"
    ) as unknown:
        NewObservation(type="t", content="x", colour="red")
    assert unknown.value.field == "colour"
    with pytest.raises(InvalidField, match="content: is missing"):
        NewObservation(type="t")
    with pytest.raises(InvalidField, match=r"tags\.1"):
        NewObservation(type="t", content="x", tags=["a", 5])


@pytest.mark.parametrize("field", ["confidence", "ttl", "times"])
def test_a_boolean_is_not_a_number(field):
    with pytest.raises(InvalidInput, match=f"^{field}: True is not a "):
        NewObservation(type="t", content="x", **{field: True})


def test_only_type_and_content_are_required():
    new = NewObservation(type="t", content="x")
    assert new.times == 1
    assert {name for name, value in new if value is None} == set(NewObservation.model_fields) - {
        "type",
        "content",
        "times",
    }
    assert NewObservation(type="t", content="x", ttl=timedelta(hours=1)).ttl == timedelta(hours=1)


def test_the_json_schema_shows_positions_as_strings():
    properties = Observation.model_json_schema(mode="serialization")["properties"]
    assert {properties[name]["type"] for name in ("position", "added")} == {"string"}
