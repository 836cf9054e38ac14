"""A fence counts only from the connection that holds the claim: its source and its instance."""

from datetime import timedelta

import pytest

from scratchbus import AsyncBus
from scratchbus.domain.events import Claimed as ClaimedEvent
from scratchbus.errors import Claimed, Conflict, SettingsError, StaleFence
from scratchbus.eventlog.append import append
from scratchbus.eventlog.writes import Op, Write
from tests.engines import ALL
from tests.inspection import all_events, log_length

pytestmark = pytest.mark.engines(*ALL, slow=("memory",))


@pytest.fixture
def observation(page):
    return page.add("observation", "someone should look at this", dedupe_key="k")


WRITES = {
    "update": lambda page, id, fence: page.update(id, content="mine", fence=fence),
    "review": lambda page, id, fence: page.review(id, fence=fence),
    "resolve": lambda page, id, fence: page.resolve(id, fence=fence),
    "archive": lambda page, id, fence: page.archive(id, fence=fence),
    "refute": lambda page, id, fence: page.refute(id, reason="no", fence=fence),
    "link": lambda page, id, fence: page.link(id, "goal-1", fence=fence),
    "claim": lambda page, id, fence: page.claim(id, by="me", fence=fence),
    "release": lambda page, id, fence: page.release(id, fence=fence),
    "add": lambda page, id, fence: page.add("observation", "again", dedupe_key="k", fence=fence),
}
INTRUDERS = {"another source": {"source": "them"}, "the same source": {"source": "me"}}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("intruder", INTRUDERS.values(), ids=INTRUDERS)
def test_fence_of_another_holder_is_refused(bus, connect, observation, write, intruder):
    claim = connect("me").page().claim(observation.id)
    assert claim.fence == 1, "anyone can guess it"
    length = log_length(bus)
    with pytest.raises(Claimed) as refused:
        write(connect(**intruder).page(), observation.id, 1)
    assert (refused.value.id, refused.value.by, refused.value.until) == (observation.id, "me", claim.until)
    assert log_length(bus) == length


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_fence_of_the_holder_is_accepted(connect, observation, write):
    mine = connect("me").page()
    write(mine, observation.id, mine.claim(observation.id).fence)


def test_refusal_names_the_holder_without_advising_the_fence(connect, observation):
    connect("me").page().claim(observation.id)
    with pytest.raises(Claimed, match=r"is claimed by me until .*; only the connection that claimed it") as refused:
        connect("them").page().resolve(observation.id, fence=1)
    assert "pass" not in str(refused.value)


def test_same_source_does_not_hold_the_claim_of_another_connection(connect, observation):
    connect("me").page().claim(observation.id)
    twin = connect("me").page()
    for change in (
        lambda: twin.update(observation.id, content="mine"),
        lambda: twin.resolve(observation.id),
        lambda: twin.release(observation.id),
        lambda: twin.claim(observation.id),
    ):
        with pytest.raises(Claimed):
            change()


@pytest.mark.parametrize("by", ["executor-1", "tester", None])
def test_name_of_the_holder_does_not_matter_to_the_fence(page, observation, by):
    claim = page.claim(observation.id, by=by)
    page.update(observation.id, content="mine", fence=claim.fence)
    assert page.resolve(observation.id, fence=claim.fence).status == "resolved"


def test_claim_records_its_owner(bus, page, connect, observation):
    claim = page.claim(observation.id, by="executor-1")
    assert claim.owner == bus.owner != connect("tester").owner
    assert page.get(observation.id).claim == claim
    assert page.history(observation.id)[-1].model_dump()["owner"] == claim.owner


def test_owner_does_not_reveal_the_instance(connect):
    bus = connect("me", instance="worker-7")
    assert bus.instance == "worker-7"
    assert "worker-7" not in bus.owner
    assert connect("me", instance="worker-7").owner == bus.owner
    assert connect("them", instance="worker-7").owner != bus.owner
    assert connect("me", instance="worker-8").owner != bus.owner


def test_each_connection_has_its_own_instance(connect):
    assert len({connect("me").instance for _ in range(3)}) == 3


def test_instance_can_be_named_in_the_environment(connect, monkeypatch):
    monkeypatch.setenv("SCRATCHBUS_INSTANCE", "worker-7")
    assert connect("me").instance == "worker-7"
    assert connect("me", instance="worker-8").instance == "worker-8"


@pytest.mark.parametrize("instance", ["", "a\nb", "x" * 257, 7])
def test_bad_instance_is_refused(connect, instance):
    with pytest.raises(SettingsError, match="instance"):
        connect("me", instance=instance)


def test_restarted_worker_renews_its_claim_by_its_instance(connect, observation, clock):
    before = connect("me", instance="worker-7")
    before.page().claim(observation.id, ttl="30s")
    before.close()
    clock.advance("20s")
    after = connect("me", instance="worker-7").page()
    held = after.get(observation.id).claim
    renewed = after.claim(observation.id, ttl="30s", fence=held.fence)
    assert (renewed.fence, renewed.until) == (held.fence, held.until + timedelta(seconds=20))
    assert after.resolve(observation.id, fence=renewed.fence).status == "resolved"


def test_restarted_worker_needs_no_fence(connect, observation):
    connect("me", instance="worker-7").page().claim(observation.id)
    assert connect("me", instance="worker-7").page().release(observation.id).claim is None


def test_claiming_again_needs_the_fence(connect, observation):
    connect("me", instance="worker-7").page().claim(observation.id)
    with pytest.raises(Claimed):
        connect("me", instance="worker-7").page().claim(observation.id)


@pytest.mark.parametrize(("source", "instance"), [("them", "worker-7"), ("me", "worker-8")])
def test_source_and_instance_both_count(connect, observation, source, instance):
    fence = connect("me", instance="worker-7").page().claim(observation.id).fence
    with pytest.raises(Claimed):
        connect(source, instance=instance).page().resolve(observation.id, fence=fence)


async def test_async_fence_of_another_holder_is_refused(engine, bus_name, connect):
    connect()  # verifies and deletes the bus at the end
    common = {"bus": bus_name, "shards": engine.shards, "source": "me"}
    async with (
        AsyncBus.connect(engine.url, instance="worker-7", **common) as first,
        AsyncBus.connect(engine.url, **common) as twin,
        AsyncBus.connect(engine.url, instance="worker-7", **common) as again,
    ):
        observation = await first.page().add("observation", "x")
        claim = await first.page().claim(observation.id, by="executor-1")
        assert claim.owner == first.owner == again.owner != twin.owner
        with pytest.raises(Claimed):
            await twin.page().resolve(observation.id, fence=claim.fence)
        assert (await again.page().resolve(observation.id, fence=claim.fence)).status == "resolved"


# -- work ------------------------------------------------------------------------------------------------------------


def test_job_is_refused_when_another_writes_under_its_fence(connect, observation):
    with connect("me").work("jobs") as jobs:
        job = next(jobs)
        with pytest.raises(Claimed):
            connect("me").page().resolve(observation.id, fence=job.fence)
        assert job.resolve().status == "resolved"


def test_restarted_worker_is_handed_its_own_job_at_once(bus, connect, observation):
    before = next(iter(connect("me", instance="worker-7").work("jobs", ttl="1h")))
    with connect("me", instance="worker-7").work("jobs") as jobs:
        job = next(jobs)
        assert (job.id, job.fence, job.attempt) == (observation.id, before.fence + 1, 2)
        with pytest.raises(StaleFence):
            before.resolve()
        job.resolve()
    assert [event.kind for event in all_events(bus)][-3:] == ["lapsed", "claimed", "status_changed"]


def test_worker_does_not_take_its_own_live_jobs_again(connect, page):
    for word in ("one", "two"):
        page.add("observation", word)
    mine = connect("me", instance="worker-7")
    with mine.work("jobs") as first, mine.work("jobs") as second:
        assert {next(first).observation.content, next(second).observation.content} == {"one", "two"}
        assert mine.page().claim_next() is None


def test_restarted_worker_leaves_the_jobs_of_others_alone(connect, observation):
    iterator = connect("me", instance="worker-7").work("jobs", ttl="1h")
    next(iterator)
    for other in (
        {"source": "me"},
        {"source": "me", "instance": "worker-8"},
        {"source": "them", "instance": "worker-7"},
    ):
        bus = connect(**other)
        with bus.work("jobs", stop=Stopped()) as jobs:
            assert list(jobs) == []
        assert bus.page().claim_next() is None


def test_claim_next_does_not_take_over_claims(connect, observation):
    connect("me", instance="worker-7").page().claim(observation.id, ttl="1h")
    assert connect("me", instance="worker-7").page().claim_next() is None


class Stopped:
    """A stop event that is set from the third check on."""

    def __init__(self):
        self.asked = 0

    def is_set(self):
        self.asked += 1
        return self.asked > 2


# -- claims of older versions ----------------------------------------------------------------------------------------


def test_fence_of_a_claim_without_owner_counts_from_anyone(bus, page, connect, observation):
    event = ClaimedEvent(id="old", page="main", subject=observation.id, by="me", holder="me", ttl=60_000)
    bus.converse(append(bus.core.log, "main", [Write(event, Op.CLAIM, argument="60000:me")]))
    claim = page.get(observation.id).claim
    assert (claim.by, claim.fence, claim.owner) == ("me", 1, None)
    with pytest.raises(Claimed):
        connect("them").page().resolve(observation.id)
    assert connect("me").page().update(observation.id, content="x").version == 3
    assert connect("them").page().update(observation.id, content="y", fence=1).version == 4
    renewed = connect("me").page().claim(observation.id, fence=1)
    assert renewed.owner is not None
    with pytest.raises(Conflict):
        connect("me").page().update(observation.id, content="z", fence=1)
