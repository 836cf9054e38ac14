"""The append script: each event of a batch is checked against the state after the previous ones."""

from typing import Any

import pytest

from scratchbus.domain.events import Added, Claimed, Cleared, Due, Lapsed, Linked, Released, StatusChanged, Updated
from scratchbus.domain.lifecycle import DEFAULT
from scratchbus.errors import Claimed as ClaimedByOther
from scratchbus.errors import InvalidTransition, KeyHeld, NotFound, PageFull, StaleFence, VersionConflict
from scratchbus.eventlog.append import append
from scratchbus.eventlog.ids import new_event_id, new_id
from scratchbus.eventlog.writes import Op, Write
from tests.engines import ALL
from tests.inspection import all_events, log_length

pytestmark = pytest.mark.engines(*ALL)

CLASSES = {"active": "open", "pending_review": "open", "resolved": "closed", "archived": "final"}


def common_fields(subject: str) -> dict[str, Any]:
    return {"id": new_event_id(), "page": "main", "subject": subject, "type": "observation", "by": "tester"}


def added(subject: str, key: str = "", priority: int = 20) -> Write:
    event = Added(content="x", priority=priority, dedupe_key=key or None, **common_fields(subject))
    again = '{"v":1,"by":"tester"}'
    argument = f"{len(again)}:{again}{key}" if key else ""
    return Write(event, Op.ADD, status="active", status_class="open", priority=priority, argument=argument)


def moved(subject: str, status: str, **more: Any) -> Write:
    event = StatusChanged(status=status, status_class=CLASSES[status], reason_code="changed", **common_fields(subject))
    allowed = DEFAULT.sources_of(status)
    return Write(
        event, Op.CHANGE_STATUS, status=status, status_class=CLASSES[status], allowed=allowed, argument="tester",
        lifecycle=DEFAULT, **more,
    )  # fmt: skip


def updated(subject: str, **more: Any) -> Write:
    return Write(
        Updated(changes={"content": "y"}, **common_fields(subject)),
        Op.UPDATE,
        argument="tester",
        lifecycle=DEFAULT,
        **more,
    )


def claimed(subject: str, holder: str = "tester", fence: int | None = None) -> Write:
    event = Claimed(holder=holder, ttl=30_000, fence=fence, **common_fields(subject))
    return Write(event, Op.CLAIM, argument=f"30000:{holder}", fence=fence, lifecycle=DEFAULT)


@pytest.fixture
def write(bus):
    """Append writes as one batch and return the kinds of what was written, in order."""

    def write(*writes: Write, **options: Any) -> list[str]:
        before = log_length(bus)
        bus.converse(append(bus.core.log, "main", list(writes), **options))
        return [event.kind for event in all_events(bus)[before:]]

    return write


def test_batch_can_have_several_events_of_one_subject(write, page):
    one = new_id()
    assert write(added(one), updated(one, version=1), moved(one, "resolved", version=2)) == [
        "added", "updated", "status_changed",
    ]  # fmt: skip
    assert (page.get(one).version, page.get(one).content, page.get(one).status) == (3, "y", "resolved")


def test_version_check_counts_earlier_events_of_the_batch(write, bus, page):
    one = page.add("observation", "x").id
    with pytest.raises(VersionConflict, match=f"item 2 of 2: {one} is at version 2, not 1") as refused:
        write(updated(one, version=1), updated(one, version=1))
    assert (refused.value.expected, refused.value.actual) == (1, 2)
    assert page.get(one).version == 1


def test_existing_subject_cannot_be_added_again(write, page):
    one = page.add("observation", "x").id
    with pytest.raises(VersionConflict):
        write(added(one))
    two = new_id()
    with pytest.raises(VersionConflict):
        write(added(two), added(two))
    assert page.get(two) is None


def test_transition_check_counts_earlier_events_of_the_batch(write, page):
    one = page.add("observation", "x").id
    write(moved(one, "resolved"), moved(one, "active"), moved(one, "pending_review"), moved(one, "archived"))
    assert (page.get(one).status, page.get(one).version) == ("archived", 5)
    two = page.add("observation", "x").id
    with pytest.raises(InvalidTransition, match="item 2 of 2"):
        write(moved(two, "archived"), moved(two, "active"))
    assert page.get(two).status == "active"


def test_key_freed_in_a_batch_can_be_taken_in_it(write, page):
    old, new = page.add("observation", "x", dedupe_key="k").id, new_id()
    assert write(moved(old, "archived"), added(new, "k")) == ["status_changed", "added"]
    assert page.add("observation", "x", dedupe_key="k").id == new


def test_key_taken_in_a_batch_is_held_in_it(write, page):
    one, two = new_id(), new_id()
    assert write(added(one, "k"), added(two, "k")) == ["added", "repeated"]
    assert page.get(two) is None
    assert page.get(one).occurrences == 2


def test_key_can_change_holders_twice_in_a_batch(write, page):
    one, two, three = page.add("observation", "x", dedupe_key="k").id, new_id(), new_id()
    kinds = write(moved(one, "resolved"), added(two, "k"), moved(two, "resolved"), added(three, "k"))
    assert kinds == ["status_changed", "added", "status_changed", "added"]
    with pytest.raises(KeyHeld):
        write(moved(one, "active"))
    assert write(moved(three, "archived"), moved(one, "active")) == ["status_changed", "status_changed"]
    assert page.add("observation", "x", dedupe_key="k").id == one


def test_room_freed_in_a_batch_is_used_in_it(write, page):
    ids = [page.add("risk_alert", f"{n}").id for n in range(2)]
    new = new_id()
    assert write(moved(ids[0], "resolved"), added(new, priority=90), room=2) == ["status_changed", "added"]
    with pytest.raises(PageFull, match="item 2 of 2"):
        write(updated(ids[1]), added(new_id()), room=2)
    assert page.get(ids[1]).version == 1


def test_room_taken_in_a_batch_counts_in_it(write, page):
    low = page.add("observation", "x").id
    closed = page.resolve(page.add("risk_alert", "y").id).id
    kinds = write(moved(closed, "active"), added(new_id(), priority=90), room=2)
    assert kinds == ["status_changed", "status_changed", "added"]
    assert page.get(low).reason_code == "displaced"


def test_batch_does_not_displace_observations_it_changes(write, page):
    ids = [page.add("observation", f"{n}").id for n in range(3)]
    write(updated(ids[0]), added(new_id()), room=3)
    assert [page.get(id).status for id in ids] == ["active", "archived", "active"]


def test_batch_does_not_displace_observations_it_reopens(write, page):
    first, second = (page.resolve(page.add("observation", f"{n}").id).id for n in range(2))
    with pytest.raises(PageFull):
        write(moved(first, "active"), moved(second, "active"), room=1)
    assert page.active() == []


def test_claim_made_in_a_batch_holds_in_it(write, page):
    one = page.add("observation", "x").id
    with pytest.raises(ClaimedByOther, match="item 2 of 2"):
        write(claimed(one, "other"), updated(one))
    with pytest.raises(StaleFence):
        write(claimed(one, "other"), updated(one, fence=2))
    assert write(claimed(one, "other"), updated(one, fence=1)) == ["claimed", "updated"]
    assert page.get(one).claim.by == "other"


def test_claim_released_in_a_batch_is_free_in_it(write, page):
    one = page.add("observation", "x").id
    release = Write(Released(**common_fields(one)), Op.END_CLAIM, argument="0:0:a")
    assert write(claimed(one, "a"), release, claimed(one, "b")) == ["claimed", "released", "claimed"]
    assert (page.get(one).claim.by, page.get(one).claim.fence) == ("b", 2)


def test_observation_cleared_in_a_batch_is_gone_in_it(write, page):
    one = page.resolve(page.add("observation", "x").id).id
    with pytest.raises(NotFound, match="item 2 of 2"):
        write(Write(Cleared(**common_fields(one)), Op.CLEAR), Write(Linked(action="a", **common_fields(one)), Op.NOTE))
    assert page.get(one).links == []


def test_one_refused_event_refuses_the_whole_batch(write, bus, page):
    one = page.add("observation", "x").id
    length = log_length(bus)
    with pytest.raises(NotFound, match=r"item 3 of 4: .*; nothing was written"):
        write(added(new_id(), "k"), moved(one, "archived"), claimed(new_id()), updated(new_id()))
    assert log_length(bus) == length
    assert page.get(one).status == "active"
    assert page.add("observation", "x", dedupe_key="k").occurrences == 1


def test_outdated_expiries_and_lapses_are_skipped(write, bus, page, clock):
    first, second, third = (page.add("observation", f"{n}", ttl="1m") for n in range(3))
    page.claim(second.id)
    page.resolve(third.id)
    clock.advance("2m")

    def expired(subject: str) -> Write:
        event = StatusChanged(status="archived", status_class="final", reason_code="expired", **common_fields(subject))
        return Write(event, Op.SETTLE, version=1, status="archived", status_class="final")

    lapse = Write(Lapsed(**common_fields(second.id)), Op.LAPSE, fence=7)
    kinds = write(expired(first.id), expired(second.id), expired(third.id), lapse, mode="each")
    assert kinds == ["status_changed"]
    assert page.get(first.id).version == 2
    assert page.get(second.id).version == 2


def test_only_an_ended_claim_can_lapse(write, page, clock):
    one = page.add("observation", "x").id
    page.claim(one, ttl="1m")
    with pytest.raises(StaleFence):
        write(Write(Lapsed(**common_fields(one)), Op.LAPSE, fence=1))
    clock.advance("2m")
    assert write(Write(Lapsed(**common_fields(one)), Op.LAPSE, fence=1)) == ["lapsed"]
    with pytest.raises(StaleFence):
        write(Write(Lapsed(**common_fields(one)), Op.LAPSE, fence=1))
    page.claim(one, ttl="1m")
    clock.advance("2m")
    with pytest.raises(StaleFence):
        write(Write(Lapsed(**common_fields(one)), Op.LAPSE, fence=1))


def test_due_event_checks_the_version(write, page):
    one = page.add("reminder", "x", remind_on={"type": "risk_alert"}).id
    assert write(Write(Due(**common_fields(one)), Op.NOTE, version=1, due_at="0")) == ["due"]
    with pytest.raises(VersionConflict):
        write(Write(Due(**common_fields(one)), Op.NOTE, version=1, due_at="0"))


def test_batch_items_are_numbered(write, bus):
    write(*[added(new_id()) for _ in range(3)])
    write(added(new_id()))
    assert [event.batch for event in all_events(bus)] == ["1/3", "2/3", "3/3", "1/1"]


def test_event_names_the_previous_event_of_its_subject(write, bus):
    one, two = new_id(), new_id()
    write(added(one), added(two), updated(one), claimed(two), updated(one))
    events = all_events(bus)
    assert [event.prev for event in events] == [
        "", "", events[0].position.stream_id, events[1].position.stream_id, events[2].position.stream_id,
    ]  # fmt: skip
