"""`update`, `link`, `clear_resolved` and `history` of a page."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from scratchbus import NewObservation, Observation, ObservationPatch, Page
from scratchbus.domain.observation_models import UPDATABLE
from scratchbus.errors import (
    EventIdReused,
    InvalidField,
    InvalidTransition,
    InvalidTTL,
    NotFound,
    ReadOnlyField,
    TooLarge,
    UnknownField,
    VersionConflict,
)
from tests.engines import ONE
from tests.inspection import all_events, log_length, project


@pytest.fixture
def story(page):
    return page.add("observation", "old", tags=["a"], context={"x": 1}, metadata={"y": 1}, owner="me", ttl="1h")


def test_every_updatable_field_can_be_changed(page, story, clock):
    clock.advance("1m")
    changes = {
        "content": "new",
        "owner": "you",
        "confidence": 0.5,
        "context": {"z": [1, 2]},
        "tags": ["b", "c"],
        "metadata": {},
        "expires_at": datetime(2100, 1, 1, tzinfo=UTC),
    }
    for version, (field, value) in enumerate(changes.items(), start=2):
        after = page.update(story.id, **{field: value})
        assert getattr(after, field) == value
        assert after.version == version
        assert after == page.get(story.id)
    assert after.created_at < after.updated_at == clock.now


def test_several_fields_are_updated_in_one_event(page, story):
    after = page.update(story.id, content="new", tags=[], owner=None)
    assert (after.content, after.tags, after.owner, after.version) == ("new", [], None, 2)


def test_an_expiry_can_be_removed_and_set_again(page, story, clock):
    assert page.update(story.id, expires_at=None).expires_at is None
    clock.advance("2h")
    assert page.get(story.id).status == "active"
    page.update(story.id, expires_at=clock.now + timedelta(hours=1))
    clock.advance("1h")
    assert page.get(story.id).status == "archived"


def test_lists_find_observations_by_updated_fields(bus, page, story):
    project(bus)
    page.update(story.id, tags=["b"], owner="you")
    for _ in ("not folded yet", "folded"):
        assert page.list(tags="a") == page.list(owner="me") == []
        assert page.list(tags="b")[0].id == page.list(owner="you")[0].id == story.id
        project(bus)


@pytest.mark.parametrize(
    "field", ["id", "created_at", "source", "page", "type", "version", "priority", "occurrences", "claim", "position"]
)
def test_a_read_only_field_is_refused_by_name(bus, page, story, field):
    length = log_length(bus)
    with pytest.raises(ReadOnlyField, match=f"{field}: cannot be updated; these can: .*content") as refused:
        page.update(story.id, **{"content": "new", field: "x"})
    assert refused.value.field == field
    assert log_length(bus) == length


def test_an_unknown_field_is_refused_with_the_known_ones(bus, page, story):
    with pytest.raises(
        UnknownField, match="colour: unknown field; use one of: blocked_by, confidence, content"
    ) as refused:
        page.update(story.id, colour="red")
    assert refused.value.known == sorted(refused.value.known)
    with pytest.raises(UnknownField):
        page.update(story.id, ttl="2h")
    assert log_length(bus) == 1


def test_type_checkers_refuse_an_unknown_field(page: Page, story: Observation):
    with pytest.raises(UnknownField):
        page.update(story.id, contnt="x")  # type: ignore[call-arg]  # mypy fails when this is not needed
    with pytest.raises(InvalidField):
        page.update(story.id, confidence="high")  # type: ignore[arg-type]
    with pytest.raises(UnknownField):
        page.add("observation", "new", source="me", contnt="x")  # type: ignore[arg-type]


def test_a_patch_has_exactly_the_updatable_fields():
    assert tuple(ObservationPatch.__annotations__) == UPDATABLE


def test_an_update_of_the_status_keeps_its_reason(page, story):
    changed = page.update(story.id, content="second", status="pending_review", reason="the sensor was replaced")
    assert (changed.content, changed.reason_code, changed.reason) == ("second", "reviewed", "the sensor was replaced")
    assert page.history(story.id)[-1].reason == changed.reason == page.get(story.id).reason
    again = page.update(story.id, {"status": "active", "reason": "a false alarm"}, event_id="evt-1")
    assert page.update(story.id, status="active", reason="a false alarm", event_id="evt-1") == again
    with pytest.raises(EventIdReused):
        page.update(story.id, status="active", reason="another", event_id="evt-1")


@pytest.mark.parametrize("changes", [{"reason": "x"}, {"content": "x", "reason": None}])
def test_a_reason_without_a_status_is_refused(bus, page, story, changes):
    with pytest.raises(InvalidField, match="reason: says why the status changes; give the new status too"):
        page.update(story.id, **changes)
    assert log_length(bus) == 1


def test_an_update_without_changes_is_refused(page, story):
    with pytest.raises(InvalidField, match="nothing to update"):
        page.update(story.id)


def test_a_wrong_version_is_refused_with_the_actual_one(bus, page, story):
    page.update(story.id, content="second")
    for call in (
        lambda: page.update(story.id, content="x", expected_version=1),
        lambda: page.update(story.id, status="resolved", expected_version=1),
        lambda: page.resolve(story.id, expected_version=3),
    ):
        with pytest.raises(VersionConflict, match="is at version 2, not") as refused:
            call()
        assert refused.value.actual == 2
    assert log_length(bus) == 2
    assert page.update(story.id, content="third", status="resolved", expected_version=2).version == 4


def test_an_invalid_expected_version_is_refused(page, story):
    for version in (0, -1, "1"):
        with pytest.raises(InvalidField, match="expected_version"):
            page.update(story.id, content="x", expected_version=version)


def test_a_past_or_invalid_expiry_is_refused(bus, page, story):
    for end in (datetime(2020, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)):
        with pytest.raises(InvalidTTL, match="is in the past"):
            page.update(story.id, expires_at=end)
    too_far = datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))
    for none in (datetime(1, 1, 1, tzinfo=UTC), too_far, "someday", 12):
        with pytest.raises(InvalidField, match="expires_at"):
            page.update(story.id, expires_at=none)
    assert log_length(bus) == 1
    assert page.update(story.id, expires_at=datetime.max.replace(tzinfo=UTC)).expires_at.year == 9999


def test_updates_have_the_limits_of_additions(connect):
    page = connect(max_content=10).page()
    story = page.add("observation", "short")
    for changes in (
        {"content": "longer than ten"},
        {"content": ""},
        {"confidence": 2},
        {"tags": "text"},
        {"owner": ""},
    ):
        with pytest.raises(InvalidField) as refused:
            page.update(story.id, **changes)
        assert refused.value.field == next(iter(changes))
    assert page.get(story.id) == story


def test_each_link_is_kept_once(page, story):
    for action in ("goal-1", "goal-2", "goal-1"):
        linked = page.link(story.id, action)
    assert (linked.links, linked.version) == (["goal-1", "goal-2"], 4)
    page.archive(story.id)
    assert page.link(story.id, "goal-3").links == ["goal-1", "goal-2", "goal-3"]


def test_a_cleared_observation_leaves_the_page_and_keeps_its_history(bus, page, story):
    page.resolve(story.id)
    page.clear_resolved([story.id])
    assert page.get(story.id) is None
    assert page.list() == page.active() == []
    assert [event.kind for event in page.history(story.id)] == ["added", "status_changed", "cleared"]
    with pytest.raises(NotFound):
        page.reopen(story.id)
    with pytest.raises(NotFound):
        page.clear_resolved([story.id])


def test_clearing_is_all_or_nothing(bus, page, story):
    resolved = [page.resolve(page.add("observation", f"{n}").id).id for n in range(3)]
    length = log_length(bus)
    with pytest.raises(InvalidTransition, match=f"item 3 of 4: {story.id} is active and cannot be cleared"):
        page.clear_resolved([*resolved[:2], story.id, resolved[2]])
    assert log_length(bus) == length
    page.archive(resolved[0])
    with pytest.raises(InvalidTransition, match=f"{resolved[0]} is archived"):
        page.clear_resolved(resolved)
    with pytest.raises(NotFound, match="01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        page.clear_resolved([resolved[1], "01ARZ3NDEKTSV4RRFFQ69G5FAV"])
    assert len(page.list()) == 4


def test_clearing_is_one_batch_without_duplicates(bus, page):
    ids = [page.resolve(page.add("observation", f"{n}").id).id for n in range(3)]
    page.clear_resolved([*ids, ids[0], ids[1].lower()])
    assert [event.batch for event in all_events(bus)[-3:]] == ["1/3", "2/3", "3/3"]
    length = log_length(bus)
    page.clear_resolved([])
    assert log_length(bus) == length


def test_clearing_more_than_1000_observations_is_refused(page, story):
    ids = [f"{story.id[:-5]}{n:05}" for n in range(1001)]
    with pytest.raises(TooLarge, match="ids: 1001 observations is over the limit of 1000"):
        page.clear_resolved(ids)


def test_history_has_every_event_oldest_first(page, story):
    page.update(story.id, content="new")
    page.claim(story.id, by="me")
    page.resolve(story.id, reason="done", fence=1)
    events = page.history(story.id)
    assert [event.kind for event in events] == ["added", "updated", "claimed", "status_changed"]
    assert {event.subject for event in events} == {story.id}
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert (events[3].by, events[3].reason, events[3].reason_code) == ("tester", "done", "resolved")


@pytest.mark.engines(*ONE)
def test_a_long_history_is_complete(page):
    page.add_many([NewObservation(type="observation", content="x", dedupe_key="k") for _ in range(1000)])
    (only,) = page.list()
    assert len(page.history(only.id)) == only.occurrences == 1000
