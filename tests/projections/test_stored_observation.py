"""The stored form of an observation has exactly the fields of the model."""

from datetime import UTC, datetime

import msgspec
import pytest

from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.observation_models import ObservationFields
from scratchbus.domain.values import millis
from scratchbus.eventlog.stored_documents import UNREADABLE, decode_row, encode_document, read_document
from scratchbus.projections.filters import Filter
from scratchbus.projections.scratch_page import as_observation, is_active, settled_all
from scratchbus.projections.stored_observation import BASICS, Details, StoredClaim, StoredObservation

AT = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)
PLAIN = Observation(
    id="A", page="main", type="t", source="s", content="x", added_ms=5, added_seq=7, ms=5, seq=7
)  # fmt: skip
FULL = PLAIN.model_copy(
    update={
        "seq": 9, "ms": 6, "version": 3, "shard": 2, "confidence": 0.5, "context": {"n": 10**30}, "tags": ["a", "é"],
        "claim": Claim(by="me", fence=4, until=AT, owner="ab"), "expires_at": AT, "links": ["goal"], "fence": 4,
        "remind_on": {"type": "t"}, "damaged": True,
    }
)  # fmt: skip


def test_the_stored_form_has_the_fields_of_the_model():
    assert {*BASICS, *Details.__struct_fields__, "displaced"} == {*Observation.model_fields}  # only in results
    assert {*StoredClaim.__struct_fields__} == {*Claim.model_fields}


def test_the_details_of_an_addition_come_first_and_in_order():
    given = tuple(name for name in ObservationFields.model_fields if name not in BASICS)
    assert Details.__struct_fields__[: len(given) + 2] == (*given, "occurrences", "shard")


def test_the_stored_form_has_the_defaults_of_the_model():
    made = StoredObservation(id="A", page="main", type="t", source="s", content="x", added_ms=5, added_seq=7)
    assert as_observation(made) == PLAIN
    assert [*as_observation(made).__dict__] == [*Observation.model_fields]


def test_the_stored_form_has_the_position_of_the_last_event():
    assert [(each.ms, each.seq) for each in map(StoredObservation.of, (PLAIN, FULL))] == [(5, 7), (6, 9)]


def test_observations_share_no_mutable_values():
    stored = decode_row(encode_document(PLAIN))
    one, other = as_observation(stored), as_observation(stored)
    for field, value in one.__dict__.items():
        if isinstance(value, list | dict) and field != "tags":
            assert value == getattr(other, field)
            assert value is not getattr(other, field), field


@pytest.mark.parametrize("observation", [PLAIN, FULL], ids=["plain", "full"])
def test_an_observation_survives_storing(observation):
    assert read_document(observation.id, encode_document(observation)) == observation
    assert as_observation(StoredObservation.of(observation)) == observation
    assert as_observation(observation) is observation


def test_default_and_redundant_fields_are_not_stored():
    assert msgspec.json.decode(encode_document(PLAIN)) == ["A", "main", "t", "s", 5, 7, "x", [], 50, None]
    changed = PLAIN.model_copy(update={"status": "resolved", "seq": 9, "ms": 6})
    assert msgspec.json.decode(encode_document(changed))[-1] == {"status": "resolved", "ms": 6, "seq": 9}


@pytest.mark.parametrize(
    "wrong",
    [
        b'["A","main","t","s",5,7,"x",[],50,null,{"confidence":2}]',
        b'["A","main","t","s",5,7,"x",[],9007199254740992]',
        b'["A","main","t","s",5,7,"x","a"]',
        b'["A","main","t","s",5,7,"x",[],50,"soon"]',
        b'["A","main","t","s",5,7,null]',
        b'["A","main","t","s",5,7]',
        b'["A","main","t","s",5,7,"x",[],50,null,{"claim":{"by":"me"}}]',
        b'["A","main","t","s",5,7,"x",[],50,null,{"version":"1"}]',
        b'{"id":"A","page":"main","type":"t","source":"s","content":"x","added_ms":5,"added_seq":7}',
    ],
)
def test_a_row_that_the_model_refuses_is_unreadable(wrong):
    with pytest.raises(UNREADABLE):
        read_document("A", wrong)


@pytest.mark.parametrize(
    "given",
    [
        {"context": {"n": 10**30}}, {"context": {"n": 1}}, {"owner": "me"}, {"status": "active"}, {"tags": "a"},
        {"source": "s", "type": "t", "text": "X", "since": AT}, {"waiting": True},
    ],
    ids=str,
)  # fmt: skip
def test_filters_match_the_stored_form_like_the_model(given):
    wanted = Filter.parse(given)
    for observation in (PLAIN, FULL):
        assert wanted.matches(StoredObservation.of(observation)) == wanted.matches(observation)


def test_the_stored_form_settles_like_the_model():
    ends = [PLAIN.model_copy(update={"expires_at": AT}), FULL, FULL.model_copy(update={"expires_at": None}), PLAIN]
    ends.append(FULL.model_copy(update={"status": "resolved", "status_class": "closed"}))
    for now in (millis(AT) - 1, millis(AT), millis(AT) + 1):
        as_models, as_stored = settled_all(ends, now), settled_all(map(StoredObservation.of, ends), now)
        assert [*map(as_observation, as_stored)] == as_models
        assert [*map(is_active, as_stored)] == [*map(is_active, as_models)]
