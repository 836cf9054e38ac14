"""Full pages: displacement and refusal."""

from contextlib import suppress
from datetime import timedelta

import pytest

from scratchbus import NewObservation, document_of
from scratchbus.commands.read import list_displaced
from scratchbus.domain.values import millis
from scratchbus.errors import InvalidField, PageFull
from scratchbus.telemetry.counters import counts
from tests.engines import ALL
from tests.inspection import all_events, log_length, project

pytestmark = pytest.mark.engines(*ALL)


@pytest.fixture
def three(connect):
    """A page with room for three."""
    return connect(max_observations=3).page()


def contents(page):
    return [one.content for one in page.active()]


def test_a_newcomer_displaces_the_lowest_then_the_oldest(three):
    three.add("risk_alert", "high")
    low = three.add("observation", "low and old")
    three.add("observation", "low and young")
    new = three.add("observation", "new")
    assert contents(three) == ["high", "new", "low and young"]
    gone = three.get(low.id)
    assert (gone.status, gone.reason_code, gone.reason) == ("archived", "displaced", f"made room for {new.id}")


def test_displaced_returns_the_observations_an_addition_displaced(three):
    low, high, middle = (
        three.add("observation", "low"),
        three.add("risk_alert", "high"),
        three.add("observation", "mid"),
    )
    assert three.displaced(high) == []
    new = three.add("observation", "new")
    assert three.displaced(new) == [three.get(low.id)]
    first, second = three.add_many([NewObservation(type="observation", content=f"{n}") for n in range(2)])
    assert [one.id for each in (first, second) for one in three.displaced(each)] == [middle.id, new.id]
    assert three.displaced(three.update(first.id, content="x")) == []
    three.resolve(second.id)
    three.add("observation", "last")
    assert [one.id for one in three.displaced(three.reopen(second.id))] == [first.id]
    with pytest.raises(InvalidField, match="newcomer: 'x' is not an observation"):
        three.displaced("x")


def test_an_addition_reports_displaced_ids_and_the_metric_counts_them(three):
    before = counts.displaced
    low = three.add("observation", "low")
    assert low.displaced == ()
    three.add("observation", "middle")
    third = three.add("observation", "third")
    new = three.add("risk_alert", "new")  # by the script for additions
    assert new.displaced == (low.id,)
    keyed = three.add("risk_alert", "keyed", dedupe_key="k")  # by the append script
    assert len(keyed.displaced) == 1
    batch = three.add_many([NewObservation(type="risk_alert", content=each) for each in "ab"])
    assert [each.displaced for each in batch] == [(third.id,), (new.id,)]
    assert counts.displaced == before + 4
    stored = three.get(batch[1].id)
    assert (stored, stored.displaced) == (batch[1], ())  # part of the result, not of the observation
    assert "displaced" not in document_of(stored)
    assert document_of(batch[0])["displaced"] == (third.id,)


def test_displaced_asks_the_engine_only_when_the_addition_does_not_know(connect):
    bus = connect(max_observations=6)

    def asks(newcomer):
        return any(True for _ in list_displaced(bus.core, "main", newcomer))

    added = bus.page().add("observation", "plain")
    assert not asks(added)
    assert not asks(bus.page().add("observation", "by the append script", dedupe_key="k"))
    assert asks(added)  # no longer the last addition
    two = bus.page().add_many([NewObservation(type="observation", content=f"{n}") for n in range(2)])
    keyed = bus.page().add_many([NewObservation(type="observation", content=n, dedupe_key=n) for n in "ab"])
    assert [asks(each) for each in (*two, *keyed)] == [True, True, False, False]
    for key in (None, "c"):
        new = bus.page().add("observation", "full", dedupe_key=key)
        assert asks(new)
        assert len(bus.page().displaced(new)) == 1


def test_displaced_reads_a_whole_batch_at_once(connect):
    bus = connect(max_observations=40)
    page = bus.page()
    items = [NewObservation(type="observation", content=f"{n}") for n in range(30)]
    old, new = page.add_many(items), page.add_many(items)

    def calls(newcomers):
        conversation, count, reply = list_displaced(bus.core, "main", newcomers), 0, None
        with suppress(StopIteration):
            while True:
                reply = bus.converse(answer_to(conversation.send(reply)))
                count += 1
        return count

    assert [one.id for one in page.displaced(new)] == [one.id for one in old[:20]]
    assert [one.id for one in page.displaced([new[-1], *new[:11]])] == [old[0].id, old[19].id]
    assert page.displaced([]) == page.displaced(old) == []
    assert calls(new) == calls(new[-1]) <= 3
    with pytest.raises(InvalidField, match="newcomer: None is not an observation"):
        page.displaced([*new, None])


def test_displaced_accepts_displaced_observations_too(three):
    low = three.add("observation", "low")
    three.add_many([NewObservation(type="observation", content=f"{n}") for n in range(2)])
    new = three.add("observation", "new")
    gone = three.get(low.id)
    assert three.displaced([gone, new]) == three.displaced(new) == [gone]


def answer_to(request):
    return (yield request)


def test_displaced_omits_erased_observations(three):
    low = three.add("observation", "low")
    three.add_many([NewObservation(type="observation", content=f"{n}") for n in range(2)])
    new = three.add("observation", "new")
    three.erase(low.id, reason="asked for")
    assert three.displaced(new) == []


def test_displacement_and_addition_are_one_batch(connect):
    bus = connect(max_observations=1)
    old = bus.page().add("observation", "old")
    new = bus.page().add("observation", "new")
    events = all_events(bus)[1:]
    assert [(event.kind, event.subject, event.batch) for event in events] == [
        ("status_changed", old.id, "1/2"),
        ("added", new.id, "2/2"),
    ]
    assert new.position == events[1].position


def test_higher_priority_is_not_displaced(three):
    three.add_many([NewObservation(type="risk_alert", content=f"{n}") for n in range(3)])
    with pytest.raises(PageFull, match="has 3 open observations, the limit") as refused:
        three.add("observation", "unimportant")
    assert (refused.value.page, refused.value.limit) == ("main", 3)
    assert contents(three) == ["2", "1", "0"]


def test_the_limit_of_a_full_page_may_be_one(connect):
    page = connect(max_observations=1, on_full="refuse").page()
    page.add("observation", "x")
    with pytest.raises(PageFull, match="has 1 open observation, the limit"):
        page.add("observation", "y")


def test_equal_priority_is_displaced(three):
    for n in range(4):
        three.add("risk_alert", f"{n}")
    assert contents(three) == ["3", "2", "1"]


def test_claimed_observations_are_not_displaced(three):
    claimed = three.add("observation", "claimed")
    three.add("observation", "second")
    three.add("observation", "third")
    three.claim(claimed.id, by="executor-1")
    three.add("observation", "fourth")
    assert contents(three) == ["fourth", "third", "claimed"]


def test_a_page_full_of_claims_refuses_additions(three):
    for n in range(3):
        three.claim(three.add("observation", f"{n}").id)
    with pytest.raises(PageFull):
        three.add("risk_alert", "urgent")


def test_a_lapsed_claim_does_not_prevent_displacement(three, clock):
    for n in range(3):
        three.claim(three.add("observation", f"{n}").id, ttl="10s")
    clock.advance("11s")
    three.add("observation", "new")
    assert contents(three) == ["new", "2", "1"]


def test_observations_in_review_take_room_and_can_be_displaced(three):
    waiting = three.add("observation", "waiting", status="pending_review")
    for n in range(3):
        three.add("observation", f"{n}")
    assert three.get(waiting.id).reason_code == "displaced"


def test_expired_observations_make_room_first(three, clock):
    high = three.add("risk_alert", "high but over", ttl="10s")
    three.add("observation", "low")
    three.add("observation", "low too")
    clock.advance("11s")
    three.add("observation", "new")
    assert contents(three) == ["new", "low too", "low"]
    assert three.get(high.id).reason_code == "expired"
    assert [event.reason_code for event in three.history(high.id)[1:]] == ["expired"]


def test_expired_observations_of_a_batch_make_room_first(three, clock):
    three.add("observation", "low")
    batch = [
        NewObservation(type="risk_alert", content="high", ttl="10s"),
        NewObservation(type="observation", content="x"),
    ]
    high, _ = three.add_many(batch)
    clock.advance("11s")
    three.add("observation", "new")
    assert contents(three) == ["new", "x", "low"]
    assert three.get(high.id).reason_code == "expired"


def test_a_page_whose_first_additions_are_a_batch_is_listed(bus, page):
    page.add("observation", "first on the shard")
    shard_of = bus.core.log.shard
    name = next(name for n in range(1_000) if shard_of(name := f"page-{n}") == shard_of("main"))
    bus.page(name).add_many([NewObservation(type="observation", content="x", ttl="never")] * 2)
    assert {one.page for one in bus.pages()} == {"main", name}


def test_an_addition_to_a_page_above_a_lowered_limit_displaces_down_to_it(connect):
    page = connect(max_observations=5).page()
    for n in range(5):
        page.add("observation", f"{n}")
    connect(max_observations=3).page().add("observation", "new")
    assert contents(page) == ["new", "4", "3"]


@pytest.mark.parametrize("left_ms", [0, 1])
def test_an_observation_makes_room_from_the_millisecond_of_its_expiry(three, clock, left_ms):
    high = three.add("risk_alert", "high", ttl="10s")
    low, _ = (three.add("observation", f"{n}") for n in range(2))
    clock.set(millis(high.expires_at) - left_ms)
    three.add("observation", "new")
    reasons = [three.get(one.id).reason_code for one in (high, low)]
    assert reasons == ([None, "displaced"] if left_ms else ["expired", None])


def test_changed_expiry_times_decide_which_observations_make_room(three, clock):
    shortened = three.add("risk_alert", "shortened", ttl="never")
    three.update(shortened.id, expires_at=clock.now + timedelta(seconds=10))
    three.add("risk_alert", "repeated", dedupe_key="k", ttl="1h")
    three.add("risk_alert", "again", dedupe_key="k", ttl="10s")
    reopened = three.add("observation", "reopened", ttl="1s")
    three.reopen(three.resolve(reopened.id).id, ttl="7d")
    clock.advance("11s")
    three.add("observation", "new")
    assert contents(three) == ["new", "reopened"]


def test_claimed_but_expired_observations_make_room(three, clock):
    for n in range(3):
        three.claim(three.add("risk_alert", f"{n}", ttl="10s").id, ttl="1h")
    clock.advance("11s")
    three.add("observation", "new")
    assert contents(three) == ["new"]


def test_on_full_refuse_displaces_nothing(connect, clock):
    bus = connect(max_observations=2, on_full="refuse")
    page = bus.page()
    page.add("observation", "first", ttl="10s")
    page.add("observation", "second")
    before = log_length(bus)
    with pytest.raises(PageFull):
        page.add("risk_alert", "urgent")
    assert log_length(bus) == before
    clock.advance("11s")
    assert page.add("risk_alert", "urgent").status == "active"


def test_a_batch_displaces_no_more_than_needed(three):
    three.add("observation", "old")
    three.add("observation", "young")
    three.add_many([NewObservation(type="observation", content=f"{n}") for n in range(2)])
    assert contents(three) == ["1", "0", "young"]


def test_a_batch_never_displaces_its_own_members(three):
    three.add("risk_alert", "urgent")
    batch = [NewObservation(type="observation", content="low")] + [
        NewObservation(type="risk_alert", content=f"{n}") for n in range(3)
    ]
    with pytest.raises(PageFull, match=r"item 4 of 4: .*; nothing was written"):
        three.add_many(batch)
    assert contents(three) == ["urgent"]


def test_a_batch_does_not_displace_an_observation_it_repeats(three):
    kept = three.add("observation", "kept", dedupe_key="k")
    three.add("observation", "middle")
    three.add("observation", "young")
    new, repeated = three.add_many(
        [
            NewObservation(type="observation", content="new"),
            NewObservation(type="observation", content="again", dedupe_key="k"),
        ]
    )
    assert (repeated.id, repeated.occurrences) == (kept.id, 2)
    assert contents(three) == ["new", "young", "kept"]
    assert new.status == "active"


def test_closing_an_observation_makes_room(three):
    for n in range(3):
        three.add("risk_alert", f"{n}")
    three.resolve(three.list()[0].id)
    assert three.add("observation", "fits").status == "active"


def test_a_reopened_observation_takes_room(three):
    closed = three.add("risk_alert", "closed")
    three.resolve(closed.id)
    for n in range(3):
        three.add("observation", f"{n}")
    reopened = three.reopen(closed.id)
    assert (reopened.status, reopened.version) == ("active", 3)
    assert contents(three) == ["closed", "2", "1"]


def test_a_reopen_is_refused_on_a_page_full_of_higher_priority(three):
    closed = three.add("observation", "closed")
    three.resolve(closed.id)
    for n in range(3):
        three.add("risk_alert", f"{n}")
    with pytest.raises(PageFull):
        three.reopen(closed.id)
    assert three.get(closed.id).status == "resolved"


def test_closed_observations_do_not_count_toward_the_limit(three):
    for n in range(6):
        three.resolve(three.add("observation", f"{n}").id)
    assert len(three.list()) == 6
    for n in range(3):
        three.add("observation", f"open {n}")
    assert {one.status for one in three.list(status=["active"])} == {"active"}


def test_every_page_has_its_own_limit(connect):
    bus = connect(max_observations=1)
    for name in ("main", "a", "b", "user:42"):
        bus.page(name).add("observation", name)
    assert [contents(bus.page(name)) for name in ("main", "a", "b", "user:42")] == [["main"], ["a"], ["b"], ["user:42"]]


def test_displacement_sees_unfolded_claims(bus, three):
    for n in range(3):
        three.add("observation", f"{n}")
    project(bus)
    three.claim(three.list()[2].id)
    three.add("observation", "new")
    assert contents(three) == ["new", "2", "0"]


def test_hundreds_of_expired_observations_make_room_at_once(connect, clock):
    bus = connect(max_observations=400)
    page = bus.page()
    page.add_many([NewObservation(type="risk_alert", content=f"{n}", ttl="10s") for n in range(400)])
    clock.advance("11s")
    page.add("observation", "new")
    assert contents(page) == ["new"]
