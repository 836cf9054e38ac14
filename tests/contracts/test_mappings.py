"""Observations, filters and changes passed as one mapping or object."""

import pytest

from scratchbus import NewObservation
from scratchbus.errors import EventIdReused, InvalidField, ReadOnlyField, UnknownField

FIELDS = {"type": "risk_alert", "content": "Fraud ring", "tags": ["security"], "ttl": "2h", "confidence": 0.9}


@pytest.mark.parametrize("whole", [FIELDS, NewObservation(**FIELDS)], ids=["a mapping", "a NewObservation"])
def test_add_accepts_a_mapping_or_a_new_observation(page, whole):
    added = page.add(whole)
    assert added == page.get(added.id)
    assert (added.type, added.content, added.tags, added.confidence) == ("risk_alert", "Fraud ring", ["security"], 0.9)
    assert (added.expires_at - added.created_at).total_seconds() == 7200


def test_other_arguments_override_the_mapping(page):
    added = page.add(FIELDS | {"times": 3}, "Small ring", source="router", tags=["new"])
    assert (added.source, added.tags, added.occurrences, added.content) == ("router", ["new"], 3, "Small ring")


def test_retry_of_a_mapping_returns_the_first_observation(page):
    first = page.add(FIELDS, event_id="e1")
    assert page.add(FIELDS | {"event_id": "e1"}) == first == page.add(NewObservation(**FIELDS), event_id="e1")
    with pytest.raises(EventIdReused):
        page.add(FIELDS | {"content": "another"}, event_id="e1")
    assert page.list() == [first]


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        ({"type": "observation"}, "content: is missing"),
        ({"content": "x"}, "type: is missing"),
        ("observation", "content: None is not a text"),
        (FIELDS | {"colour": "red"}, "colour: unknown field"),
        (FIELDS | {5: 1}, "5: unknown field"),
        (FIELDS | {"confidence": 2}, "confidence: 2 is not"),
        (["observation", "x"], "type: "),
    ],
)
def test_error_names_the_bad_field_of_a_mapping(page, whole, message):
    with pytest.raises(InvalidField, match=f"^{message}"):
        page.add(whole)
    assert page.list() == []


def test_list_accepts_filters_as_a_mapping(page):
    page.add("observation", "other")
    added = [page.add(FIELDS) for _ in range(3)]
    assert page.list({"type": "risk_alert", "tags": ["security"]}) == added[::-1]
    assert page.list({"type": "risk_alert", "limit": 1}) == page.list({"type": "risk_alert"}, limit=1) == added[:1:-1]
    assert page.list({"type": "risk_alert", "limit": 2}, type="observation", limit=1)[0].content == "other"
    assert len(page.list({})) == 4
    with pytest.raises(UnknownField, match=r"^tag: unknown field; use one of: after, confidence, context"):
        page.list({"tag": "security"})
    with pytest.raises(InvalidField, match=r"^filters: 5 is not a mapping"):
        page.list(5)


def test_views_and_past_pages_accept_filters_as_a_mapping(bus, page):
    page.add("observation", "other")
    added = page.add(FIELDS)
    with bus.view("main") as view:
        view.wait_for(added)
        for way in (view, page.as_of(bus.position())):
            assert [one.id for one in way.list({"type": "risk_alert"}, limit=5)] == [added.id]
            (found,) = way.list({"type": "risk_alert", "limit": 2}, type="observation")
            assert found.content == "other"
            assert [one.id for one in way.list({"limit": 1})] == [added.id]
            for wrong in ({"filters": {"tag": "security"}}, {"tag": "security"}):
                with pytest.raises(UnknownField, match=r"^tag: unknown field"):
                    way.list(**wrong)


def test_update_accepts_changes_as_a_mapping(page):
    added = page.add(FIELDS)
    assert page.update(added.id, {"content": "Larger ring", "confidence": 1.0}).content == "Larger ring"
    changed = page.update(added.id, {"content": "x"}, owner="agent", expected_version=2)
    assert (changed.content, changed.owner, changed.version) == ("x", "agent", 3)
    assert page.update(added.id, patch={"content": "x"}, event_id="e2").version == 4
    assert page.update(added.id, {"content": "old", "owner": "team"}, content="x", owner="agent").owner == "agent"
    changed = page.get(added.id)
    for patch, error in (({"id": "x"}, ReadOnlyField), ({"colour": "red"}, UnknownField), (5, InvalidField)):
        with pytest.raises(error):
            page.update(added.id, patch)
    assert page.get(added.id) == changed
