"""The stored form of observations has all that they have, and no more."""

from datetime import UTC, datetime

import msgspec
import pytest

from scratchbus.domain.observation import Claim, Observation, ObservationFields
from scratchbus.eventlog.stored_documents import UNREADABLE, encode_document, read_document
from scratchbus.projections.scratch_page import whole
from scratchbus.projections.stored_observation import StoredClaim, StoredObservation

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


def test_it_has_the_same_fields():
    assert {*StoredObservation.__struct_fields__} == {*Observation.model_fields}
    assert {*StoredClaim.__struct_fields__} == {*Claim.model_fields}


def test_the_fields_that_come_with_an_addition_are_together_and_in_order():
    fields, given = StoredObservation.__struct_fields__, tuple(ObservationFields.model_fields)
    first = fields.index(given[0])
    assert fields[first : first + len(given)] == given


def test_it_has_the_same_defaults():
    made = StoredObservation(id="A", page="main", type="t", source="s", content="x", added_ms=5, added_seq=7)
    assert whole(made) == PLAIN
    assert whole(made.filled()) == PLAIN


@pytest.mark.parametrize("observation", [PLAIN, FULL], ids=["plain", "full"])
def test_what_is_stored_is_read_again(observation):
    assert read_document(observation.id, encode_document(observation)) == observation
    assert whole(StoredObservation.of(observation)) == observation
    assert whole(observation) is observation


def test_what_is_default_or_said_elsewhere_is_left_out():
    stored = msgspec.json.decode(encode_document(PLAIN))
    assert stored.keys() == {"id", "page", "type", "source", "content", "added_ms", "added_seq"}


@pytest.mark.parametrize(
    "wrong",
    [
        b'"confidence":2', b'"priority":9007199254740992', b'"tags":"a"', b'"expires_at":"soon"', b'"content":null',
        b'"claim":{"by":"me"}', b'"version":"1"',
    ],
)  # fmt: skip
def test_what_the_model_refuses_is_unreadable(wrong):
    with pytest.raises(UNREADABLE):
        read_document("A", encode_document(PLAIN)[:-1] + b"," + wrong + b"}")
