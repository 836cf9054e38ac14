"""Claims and the fences that prove them."""

from datetime import timedelta

import pytest

from scratchbus.errors import Claimed, InvalidSource, InvalidTTL, NotChangeable, NotClaimed, StaleFence
from scratchbus.scheduling.expiry import sweep
from tests.engines import ALL
from tests.inspection import all_events, log_length

pytestmark = pytest.mark.engines(*ALL)


@pytest.fixture
def story(page):
    return page.add("observation", "someone should look at this")


def test_claim_shows_in_reads(page, story, clock):
    claim = page.claim(story.id, by="executor-1", ttl="30s")
    assert (claim.by, claim.fence, claim.until) == ("executor-1", 1, clock.now + timedelta(seconds=30))
    assert page.get(story.id).claim == claim
    assert page.active()[0].claim == claim


def test_a_second_claim_loses(connect, story):
    connect("first").page().claim(story.id)
    with pytest.raises(Claimed, match="is claimed by first until") as refused:
        connect("second").page().claim(story.id)
    assert (refused.value.id, refused.value.by) == (story.id, "first")
    with pytest.raises(Claimed):
        connect("first").page().claim(story.id)


def test_only_open_observations_can_be_claimed(page, story):
    page.review(story.id)
    page.release(story.id, by=page.claim(story.id).by)
    page.resolve(story.id)
    with pytest.raises(NotChangeable, match="is resolved and cannot be claimed"):
        page.claim(story.id)


def test_claim_with_a_bad_ttl_or_name_is_refused(bus, page, story):
    length = log_length(bus)
    for ttl in ("never", 0, "soon", -1):
        with pytest.raises(InvalidTTL):
            page.claim(story.id, ttl=ttl)
    with pytest.raises(InvalidSource):
        page.claim(story.id, by="no spaces please")
    assert log_length(bus) == length


@pytest.mark.parametrize(
    "change",
    [
        lambda page, id, **more: page.update(id, content="mine", **more),
        lambda page, id, **more: page.resolve(id, **more),
        lambda page, id, **more: page.review(id, **more),
        lambda page, id, **more: page.archive(id, **more),
    ],
    ids=["update", "resolve", "review", "archive"],
)
def test_only_the_holder_changes_a_claimed_observation(connect, story, change):
    mine, theirs = connect("me").page(), connect("them").page()
    fence = mine.claim(story.id).fence
    with pytest.raises(Claimed):
        change(theirs, story.id)
    with pytest.raises(StaleFence):
        change(theirs, story.id, fence=fence + 1)
    assert change(mine, story.id, fence=fence).version == 3


def test_holder_needs_no_fence(connect, story):
    mine = connect("me").page()
    mine.claim(story.id)
    assert mine.update(story.id, content="mine").content == "mine"


def test_closing_ends_the_claim(page, story):
    fence = page.claim(story.id).fence
    assert page.resolve(story.id, fence=fence).claim is None
    page.reopen(story.id)
    with pytest.raises(StaleFence):
        page.update(story.id, content="late", fence=fence)
    assert page.claim(story.id).fence == fence + 1


def test_fence_renews_the_claim(page, story, clock):
    first = page.claim(story.id, by="me", ttl="30s")
    clock.advance("20s")
    again = page.claim(story.id, by="me", ttl="30s", fence=first.fence)
    assert (again.fence, again.until) == (first.fence, first.until + timedelta(seconds=20))
    clock.advance("20s")
    assert page.update(story.id, content="still mine", fence=first.fence).claim == again


def test_ended_claim_cannot_be_renewed(page, story, clock):
    claim = page.claim(story.id, ttl="30s")
    clock.advance("31s")
    with pytest.raises(StaleFence, match=f"the claim with fence {claim.fence} has ended"):
        page.claim(story.id, fence=claim.fence)


def test_stale_fence_changes_nothing(bus, connect, story, clock):
    slow, quick = connect("slow").page(), connect("quick").page()
    lapsed = slow.claim(story.id, ttl="30s")
    clock.advance("31s")
    taken = quick.claim(story.id)
    length = log_length(bus)
    for change in (
        lambda: slow.update(story.id, content="late", fence=lapsed.fence),
        lambda: slow.resolve(story.id, fence=lapsed.fence),
        lambda: slow.link(story.id, "goal-1", fence=lapsed.fence),
        lambda: slow.release(story.id, fence=lapsed.fence),
    ):
        with pytest.raises(StaleFence) as refused:
            change()
        assert (refused.value.fence, refused.value.actual) == (lapsed.fence, taken.fence)
    assert log_length(bus) == length


def test_takeover_records_the_lapse_of_the_old_claim(bus, page, story, clock):
    page.claim(story.id, by="slow", ttl="30s")
    clock.advance("31s")
    page.claim(story.id, by="quick")
    events = all_events(bus)[-2:]
    assert [(event.kind, event.batch) for event in events] == [("lapsed", "1/2"), ("claimed", "2/2")]
    assert (page.get(story.id).claim.by, page.get(story.id).claim.fence) == ("quick", 2)


def test_lapsed_claim_is_hidden_and_swept_once(bus, page, story, clock):
    page.claim(story.id, ttl="30s")
    clock.advance("31s")
    assert page.get(story.id).claim is None
    assert bus.converse(sweep(bus.core)) == 1
    assert bus.converse(sweep(bus.core)) == 0
    assert page.history(story.id)[-1].kind == "lapsed"


def test_release_ends_the_claim(connect, story):
    mine, theirs = connect("me").page(), connect("them").page()
    mine.claim(story.id)
    with pytest.raises(Claimed):
        theirs.release(story.id)
    assert mine.release(story.id).claim is None
    assert theirs.claim(story.id).fence == 2
    with pytest.raises(Claimed):
        mine.release(story.id)


def test_release_by_fence_needs_no_name(page, story):
    claim = page.claim(story.id, by="somebody")
    page.release(story.id, fence=claim.fence)
    with pytest.raises(StaleFence):
        page.release(story.id, fence=claim.fence)


def test_unclaimed_observation_cannot_be_released(bus, page, story, clock):
    with pytest.raises(NotClaimed, match="is not claimed, or the claim has ended") as refused:
        page.release(story.id)
    assert refused.value.id == story.id
    page.claim(story.id, ttl="30s")
    clock.advance("31s")
    length = log_length(bus)
    with pytest.raises(NotClaimed):
        page.release(story.id)
    assert log_length(bus) == length


def test_fence_does_not_transfer_the_claim(bus, page, story):
    claim = page.claim(story.id, by="me")
    length = log_length(bus)
    with pytest.raises(Claimed, match="is claimed by me until") as refused:
        page.claim(story.id, by="them", fence=claim.fence)
    assert refused.value.by == "me"
    assert log_length(bus) == length
    assert page.claim(story.id, by="me", fence=claim.fence).fence == claim.fence


def test_a_claim_does_not_stop_expiry(bus, page, clock):
    story = page.add("observation", "x", ttl="1m")
    claim = page.claim(story.id, ttl="1h")
    clock.advance("2m")
    assert page.get(story.id).status == "archived"
    assert bus.converse(sweep(bus.core)) == 1
    assert (page.get(story.id).reason_code, page.get(story.id).claim) == ("expired", None)
    with pytest.raises(StaleFence):
        page.resolve(story.id, fence=claim.fence)


def test_expired_observation_cannot_be_claimed(page, clock):
    story = page.add("observation", "x", ttl="1m")
    clock.advance("2m")
    with pytest.raises(NotChangeable, match="is archived and cannot be claimed"):
        page.claim(story.id)


def test_link_needs_no_claim(connect, story):
    connect("me").page().claim(story.id)
    assert connect("them").page().link(story.id, "goal-17").links == ["goal-17"]
