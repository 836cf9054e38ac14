"""Claims and the fences that prove them."""

from datetime import timedelta

import pytest

from scratchbus.domain.values import millis
from scratchbus.errors import Claimed, InvalidSource, InvalidTTL, NotChangeable, NotClaimed, StaleFence
from scratchbus.scheduling.expiry import sweep
from tests.engines import ALL
from tests.inspection import all_events, log_length

pytestmark = pytest.mark.engines(*ALL)


@pytest.fixture
def observation(page):
    return page.add("observation", "someone should look at this")


def test_claim_shows_in_reads(page, observation, clock):
    claim = page.claim(observation.id, by="executor-1", ttl="30s")
    assert (claim.by, claim.fence, claim.until) == ("executor-1", 1, clock.now + timedelta(seconds=30))
    assert page.get(observation.id).claim == claim
    assert page.active()[0].claim == claim


def test_a_second_claim_loses(connect, observation):
    connect("first").page().claim(observation.id)
    with pytest.raises(Claimed, match="is claimed by first until") as refused:
        connect("second").page().claim(observation.id)
    assert (refused.value.id, refused.value.by) == (observation.id, "first")
    with pytest.raises(Claimed):
        connect("first").page().claim(observation.id)


def test_only_open_observations_can_be_claimed(page, observation):
    page.review(observation.id)
    page.release(observation.id, by=page.claim(observation.id).by)
    page.resolve(observation.id)
    with pytest.raises(
        NotChangeable, match="is resolved and cannot be claimed; it is closed; claim an open one, or reopen it"
    ):
        page.claim(observation.id)


def test_claim_with_a_bad_ttl_or_name_is_refused(bus, page, observation):
    length = log_length(bus)
    with pytest.raises(InvalidTTL, match="ttl: a claim must have an end; use a duration such as"):
        page.claim(observation.id, ttl="never")
    for ttl in (0, "soon", -1):
        with pytest.raises(InvalidTTL, match=f"ttl: {ttl!r} is not a valid duration here") as refused:
            page.claim(observation.id, ttl=ttl)
        assert "never" not in str(refused.value)
    with pytest.raises(InvalidSource):
        page.claim(observation.id, by="no spaces please")
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
def test_only_the_holder_changes_a_claimed_observation(connect, observation, change):
    mine, theirs = connect("me").page(), connect("them").page()
    fence = mine.claim(observation.id).fence
    with pytest.raises(Claimed):
        change(theirs, observation.id)
    with pytest.raises(StaleFence):
        change(theirs, observation.id, fence=fence + 1)
    assert change(mine, observation.id, fence=fence).version == 3


def test_holder_needs_no_fence(connect, observation):
    mine = connect("me").page()
    mine.claim(observation.id)
    assert mine.update(observation.id, content="mine").content == "mine"


def test_closing_ends_the_claim(page, observation):
    fence = page.claim(observation.id).fence
    assert page.resolve(observation.id, fence=fence).claim is None
    with pytest.raises(StaleFence, match=r"has ended \(.*\); read it, and claim it again if it is still open"):
        page.resolve(observation.id, fence=fence)
    page.reopen(observation.id)
    with pytest.raises(StaleFence):
        page.update(observation.id, content="late", fence=fence)
    assert page.claim(observation.id).fence == fence + 1


def test_fence_renews_the_claim(page, observation, clock):
    first = page.claim(observation.id, by="me", ttl="30s")
    clock.advance("20s")
    again = page.claim(observation.id, by="me", ttl="30s", fence=first.fence)
    assert (again.fence, again.until) == (first.fence, first.until + timedelta(seconds=20))
    clock.advance("20s")
    assert page.update(observation.id, content="still mine", fence=first.fence).claim == again


def test_ended_claim_cannot_be_renewed(page, observation, clock):
    claim = page.claim(observation.id, ttl="30s")
    clock.advance("31s")
    with pytest.raises(StaleFence, match=f"the claim with fence {claim.fence} has ended"):
        page.claim(observation.id, fence=claim.fence)


def test_claim_ends_at_the_millisecond_of_its_end(page, observation, clock):
    claim = page.claim(observation.id, by="first", ttl="30s")
    clock.set(millis(claim.until) - 1)
    with pytest.raises(Claimed):
        page.claim(observation.id, by="second")
    clock.set(millis(claim.until))
    assert page.get(observation.id).claim is None
    assert page.claim(observation.id, by="second").fence == claim.fence + 1


def test_a_fence_that_never_existed_is_named(page, observation):
    with pytest.raises(
        StaleFence, match=r"no claim has fence 7 \(it was never claimed\); pass the fence of your claim"
    ):
        page.update(observation.id, content="late", fence=7)
    page.claim(observation.id)
    with pytest.raises(StaleFence, match=r"no claim has fence 7 \(the latest is 1\)") as refused:
        page.update(observation.id, content="late", fence=7)
    assert (refused.value.fence, refused.value.actual) == (7, 1)


def test_stale_fence_changes_nothing(bus, connect, observation, clock):
    slow, quick = connect("slow").page(), connect("quick").page()
    lapsed = slow.claim(observation.id, ttl="30s")
    clock.advance("31s")
    taken = quick.claim(observation.id)
    length = log_length(bus)
    for change in (
        lambda: slow.update(observation.id, content="late", fence=lapsed.fence),
        lambda: slow.resolve(observation.id, fence=lapsed.fence),
        lambda: slow.link(observation.id, "goal-1", fence=lapsed.fence),
        lambda: slow.release(observation.id, fence=lapsed.fence),
    ):
        with pytest.raises(StaleFence) as refused:
            change()
        assert (refused.value.fence, refused.value.actual) == (lapsed.fence, taken.fence)
    assert log_length(bus) == length


def test_takeover_records_the_lapse_of_the_old_claim(bus, page, observation, clock):
    page.claim(observation.id, by="slow", ttl="30s")
    clock.advance("31s")
    page.claim(observation.id, by="quick")
    events = all_events(bus)[-2:]
    assert [(event.kind, event.batch) for event in events] == [("lapsed", "1/2"), ("claimed", "2/2")]
    assert (page.get(observation.id).claim.by, page.get(observation.id).claim.fence) == ("quick", 2)


def test_lapsed_claim_is_hidden_and_swept_once(bus, page, observation, clock):
    page.claim(observation.id, ttl="30s")
    clock.advance("31s")
    assert page.get(observation.id).claim is None
    assert bus.converse(sweep(bus.core)) == 1
    assert bus.converse(sweep(bus.core)) == 0
    assert page.history(observation.id)[-1].kind == "lapsed"


def test_release_ends_the_claim(connect, observation):
    mine, theirs = connect("me").page(), connect("them").page()
    mine.claim(observation.id)
    with pytest.raises(Claimed):
        theirs.release(observation.id)
    assert mine.release(observation.id).claim is None
    assert theirs.claim(observation.id).fence == 2
    with pytest.raises(Claimed):
        mine.release(observation.id)


def test_release_by_fence_needs_no_name(page, observation):
    claim = page.claim(observation.id, by="somebody")
    page.release(observation.id, fence=claim.fence)
    with pytest.raises(StaleFence):
        page.release(observation.id, fence=claim.fence)


def test_unclaimed_observation_cannot_be_released(bus, page, observation, clock):
    with pytest.raises(NotClaimed, match="is not claimed, or the claim has ended") as refused:
        page.release(observation.id)
    assert refused.value.id == observation.id
    page.claim(observation.id, ttl="30s")
    clock.advance("31s")
    length = log_length(bus)
    with pytest.raises(NotClaimed):
        page.release(observation.id)
    assert log_length(bus) == length


def test_fence_does_not_transfer_the_claim(bus, page, observation):
    claim = page.claim(observation.id, by="me")
    length = log_length(bus)
    with pytest.raises(Claimed, match="is claimed by me until") as refused:
        page.claim(observation.id, by="them", fence=claim.fence)
    assert refused.value.by == "me"
    assert log_length(bus) == length
    assert page.claim(observation.id, by="me", fence=claim.fence).fence == claim.fence


def test_a_claim_does_not_stop_expiry(bus, page, clock):
    observation = page.add("observation", "x", ttl="1m")
    claim = page.claim(observation.id, ttl="1h")
    clock.advance("2m")
    assert page.get(observation.id).status == "archived"
    assert bus.converse(sweep(bus.core)) == 1
    assert (page.get(observation.id).reason_code, page.get(observation.id).claim) == ("expired", None)
    with pytest.raises(StaleFence):
        page.resolve(observation.id, fence=claim.fence)


def test_expired_observation_cannot_be_claimed(page, clock):
    observation = page.add("observation", "x", ttl="1m")
    clock.advance("2m")
    with pytest.raises(NotChangeable, match="is archived and cannot be claimed"):
        page.claim(observation.id)


def test_observation_can_be_claimed_until_the_millisecond_of_its_expiry(page, clock):
    observation = page.add("observation", "x", ttl="1m")
    clock.set(millis(observation.expires_at) - 1)
    page.release(observation.id, fence=page.claim(observation.id).fence)
    clock.set(millis(observation.expires_at))
    assert page.get(observation.id).status == "archived"
    with pytest.raises(NotChangeable, match="is archived and cannot be claimed"):
        page.claim(observation.id)


def test_link_needs_no_claim(connect, observation):
    connect("me").page().claim(observation.id)
    assert connect("them").page().link(observation.id, "goal-17").links == ["goal-17"]
