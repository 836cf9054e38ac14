"""A refutation sends dependents to review: on its page in the same batch, then on all others."""

from typing import Any

import pytest

from scratchbus import AsyncBus, Bus, NewObservation, Observation, Page, Position, because
from scratchbus.commands import dependents as refutation
from scratchbus.commands.dependents import complete
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.engine.steps import Interrupted
from scratchbus.errors import Conflict, EventIdReused, InvalidField, InvalidTransition, NotFound, StaleFence
from scratchbus.eventlog.ids import new_id
from scratchbus.eventlog.log_reader import LogReader
from scratchbus.scheduling.reminders import complete_all, react
from tests.engines import ONE
from tests.faults.interposing import interposed
from tests.inspection import keys_of, project, send

pytestmark = pytest.mark.engines(*ONE)

WHY = "a misread line"


def on(page, *evidence, **more):
    return page.add("observation", "x", evidence=[each.id for each in evidence], **more)


def statuses(page, *observations):
    return [page.get(each.id).status for each in observations]


def reviews(bus):
    return [event for event in bus.events(kinds={"status_changed"}) if event.reason_code == "reviewed"]


def test_a_refuted_observation_is_archived_with_the_reason(page):
    wrong = on(page)
    refuted = page.refute(wrong.id, reason=WHY)
    assert (refuted.status, refuted.status_class) == ("archived", "final")
    assert (refuted.reason_code, refuted.reason) == ("refuted", WHY)
    assert page.get(wrong.id) == refuted
    assert page.active() == []


def test_dependents_go_to_review_with_the_reason_and_the_chain(page):
    wrong = on(page)
    near = on(page, wrong)
    far = on(page, near)
    page.refute(wrong.id, reason=WHY)
    near, far = page.get(near.id), page.get(far.id)
    assert {near.status, far.status} == {"pending_review"}
    assert {near.reason_code, far.reason_code} == {"reviewed"}
    assert near.reason == f"rests on {wrong.id}, which was refuted: {WHY}"
    assert far.reason == f"rests on {near.id}, which rests on {wrong.id}, which was refuted: {WHY}"
    assert (near.chain, far.chain) == ([wrong.id], [wrong.id, near.id])
    assert page.reopen(far.id).chain == []


def test_dependents_on_the_same_page_are_in_the_same_batch(page):
    wrong = on(page)
    others = [on(page, wrong) for _ in range(3)]
    page.refute(wrong.id, reason=WHY)
    batches = [page.history(each.id)[-1].batch for each in (wrong, *others)]
    assert sorted(batches) == ["1/4", "2/4", "3/4", "4/4"]
    assert batches[0] == "1/4"


def test_a_refutation_whose_reply_is_lost_sends_dependents_on_all_pages_to_review(bus, page):
    wrong = on(page)
    near, far = on(page, wrong), on(bus.page("elsewhere"), wrong)
    lost: list[Any] = []

    def around(call, send):
        replies = send()
        if call.is_write and not lost and replies[0][:1] == [b"written"]:
            lost.append(call)
            raise Interrupted("the test lost the reply")
        return replies

    with interposed(bus, around):
        refuted = page.refute(wrong.id, reason=WHY)
    assert lost
    assert (refuted.id, refuted.reason_code) == (wrong.id, "refuted")
    assert statuses(page, near) == statuses(bus.page("elsewhere"), far) == ["pending_review"]
    assert len(reviews(bus)) == 2


def test_evidence_added_by_a_repeat_counts(page):
    wrong = on(page)
    keyed = page.add("observation", "x", dedupe_key="k")
    page.add("observation", "x", dedupe_key="k", evidence=[wrong.id])
    page.refute(wrong.id, reason=WHY)
    assert statuses(page, keyed) == ["pending_review"]


def test_evidence_and_unrelated_observations_stay_active(page):
    wrong, evidence = on(page), on(page)
    under = on(page)
    middle = on(page, under)
    aside = on(page, evidence)
    page.refute(middle.id, reason=WHY)
    page.refute(wrong.id, reason=WHY)
    assert statuses(page, under, evidence, aside) == ["active"] * 3


def test_dependents_of_closed_observations_are_reviewed(page):
    wrong = on(page)
    resolved, archived, cleared = (on(page, wrong) for _ in range(3))
    above = [on(page, each) for each in (resolved, archived, cleared)]
    page.resolve(resolved.id)
    page.archive(archived.id)
    page.resolve(cleared.id)
    page.clear_resolved([cleared.id])
    page.refute(wrong.id, reason=WHY)
    assert statuses(page, *above) == ["pending_review"] * 3
    assert statuses(page, resolved, archived) == ["resolved", "archived"]


def test_a_diamond_is_reviewed_once_with_the_shortest_chain(bus, page):
    wrong = on(page)
    left, right = on(page, wrong), on(page, wrong)
    top = on(page, left, right)
    both = on(page, top, wrong)
    page.refute(wrong.id, reason=WHY)
    assert len(reviews(bus)) == 4
    assert page.get(top.id).chain in ([wrong.id, left.id], [wrong.id, right.id])
    assert page.get(both.id).chain == [wrong.id]


def test_a_cycle_of_evidence_ends(page):
    wrong = page.add("observation", "x", dedupe_key="k")
    first = on(page, wrong)
    second = on(page, first)
    page.add("observation", "x", dedupe_key="k", evidence=[second.id, wrong.id])
    page.refute(wrong.id, reason=WHY)
    assert statuses(page, wrong, first, second) == ["archived", "pending_review", "pending_review"]


def test_a_long_chain_keeps_only_its_ends(page, monkeypatch):
    monkeypatch.setattr(refutation, "_MAX_CHAIN", 3)
    chain = [on(page)]
    for _ in range(5):
        chain.append(on(page, chain[-1]))
    page.refute(chain[0].id, reason=WHY)
    ids = [each.id for each in chain]
    assert page.get(ids[5]).chain == [ids[0], *ids[3:5]]


def test_a_refutation_reaches_every_page(bus):
    pages = [bus.page(f"page-{number}") for number in range(6)]
    wrong = on(pages[0])
    chain = [wrong]
    for page in pages[1:]:
        chain.append(on(page, chain[-1]))
    pages[0].refute(wrong.id, reason=WHY)
    position = pages[0].history(wrong.id)[-1].position
    for page, each in zip(pages[1:], chain[1:], strict=True):
        assert statuses(page, each) == ["pending_review"]
        assert page.history(each.id)[-1].cause == str(position)
        assert page.get(each.id).chain[0] == wrong.id


def test_a_dependent_already_in_review_gets_the_chain(page):
    wrong = on(page)
    waiting = on(page, wrong)
    page.review(waiting.id, reason="looks odd")
    page.refute(wrong.id, reason=WHY)
    assert page.get(waiting.id).chain == [wrong.id]
    assert [event.kind for event in page.history(waiting.id)] == ["added", "status_changed", "status_changed"]


def test_a_dependent_without_a_review_status_keeps_its_status(bus, page, tmp_path):
    text = f"""{bus.types.text}
  order:
    lifecycle: orders
lifecycles:
  orders:
    statuses: {{placed: open, done: closed}}
    initial: [placed]
    transitions: {{placed: [done, archived]}}
"""
    bus.push_types(parse_registry(text, "types.yaml"))
    wrong = on(page)
    order = page.add("order", "x", evidence=[wrong.id])
    page.refute(wrong.id, reason=WHY)
    after = page.get(order.id)
    assert (after.status, after.reason_code, after.chain) == ("placed", "reviewed", [wrong.id])


def test_claims_do_not_block_a_refutation(page):
    wrong = on(page)
    above = on(page, wrong)
    page.claim(wrong.id, by="one")
    claim = page.claim(above.id, by="two")
    page.refute(wrong.id, reason=WHY)
    assert page.get(wrong.id).claim is None
    assert page.get(above.id).claim == claim
    assert page.resolve(above.id, fence=claim.fence).status == "resolved"


def test_a_refutation_with_a_wrong_fence_is_refused(page):
    wrong = on(page)
    above = on(page, wrong)
    fence = page.claim(wrong.id).fence
    with pytest.raises(StaleFence):
        page.refute(wrong.id, reason=WHY, fence=fence + 1)
    assert statuses(page, wrong, above) == ["active", "active"]
    assert page.refute(wrong.id, reason=WHY, fence=fence).reason_code == "refuted"


def test_a_refutation_records_its_cause(page):
    wrong, cause = on(page), Position(12, 1)
    with because(cause):
        page.refute(wrong.id, reason=WHY)
    assert page.history(wrong.id)[-1].cause == str(cause)


def test_a_resolved_observation_can_be_refuted(page):
    wrong = on(page)
    above = on(page, wrong)
    page.resolve(wrong.id)
    assert page.refute(wrong.id, reason=WHY).status == "archived"
    assert statuses(page, above) == ["pending_review"]


def test_an_archived_or_expired_observation_cannot_be_refuted(page, clock):
    archived, expired = on(page), on(page, ttl="10s")
    above = on(page, archived, expired)
    page.archive(archived.id)
    clock.advance("11s")
    for each in (archived, expired):
        with pytest.raises(InvalidTransition, match="is archived and cannot be refuted"):
            page.refute(each.id, reason=WHY)
        with pytest.raises(InvalidTransition, match="is archived and cannot be refuted"):
            page.refute(each.id, reason=WHY, event_id="mine")
    assert statuses(page, above) == ["active"]


def test_a_retried_refutation_changes_nothing(bus, page):
    wrong = on(page)
    above = on(page, wrong)
    first = page.refute(wrong.id, reason=WHY, event_id="mine")
    page.reopen(page.resolve(above.id).id)
    length = len(list(bus.events()))
    assert page.refute(wrong.id, reason=WHY, event_id="mine") == first
    assert len(list(bus.events())) == length
    assert statuses(page, above) == ["active"]
    with pytest.raises(EventIdReused):
        page.refute(wrong.id, reason="another", event_id="mine")
    with pytest.raises(InvalidTransition):
        page.refute(wrong.id, reason=WHY, event_id="yours")


def test_a_retry_after_an_erasure_says_so(page):
    wrong = on(page)
    page.refute(wrong.id, reason=WHY, event_id="mine")
    page.erase(wrong.id, reason="a name in it")
    with pytest.raises(NotFound, match="was erased; the history of its subject says why"):
        page.refute(wrong.id, reason=WHY, event_id="mine")
    with pytest.raises(NotFound, match=f"there is no {wrong.id} on page"):
        page.refute(wrong.id, reason=WHY, event_id="yours")


@pytest.mark.engines(*ONE)
def test_a_dependent_on_another_shard_is_found_without_reading_that_log(bus, page, clock, monkeypatch):
    wrong = on(page)
    shard = bus.core.log.shard
    name = next((name for name in map(str, range(100)) if shard(name) != shard("main")), "0")
    busy = bus.page(name)
    for _ in range(3):
        busy.add_many([NewObservation(type="observation", content="x", dedupe_key="key") for _ in range(1000)])
    above = on(busy, wrong)
    clock.advance("1h")
    busy.active()
    sizes, read = list[int](), LogReader.read

    def counted(reader, *extra):
        chunk = yield from read(reader, *extra)
        sizes.append(len(chunk.entries))
        return chunk

    monkeypatch.setattr(LogReader, "read", counted)
    evidence = on(page)
    dependent = on(busy, evidence)
    page.refute(evidence.id, reason=WHY)
    assert statuses(busy, above, dependent) == ["active", "pending_review"]
    assert sum(sizes) < 100


def test_a_retry_completes_an_interrupted_refutation(bus, page, monkeypatch):
    other = bus.page("other")
    wrong = on(page)
    above = on(other, wrong)
    monkeypatch.setattr("scratchbus.commands.refute.complete", lambda *_: iter(()))
    page.refute(wrong.id, reason=WHY, event_id="mine")
    assert statuses(other, above) == ["active"]
    monkeypatch.undo()
    page.refute(wrong.id, reason=WHY, event_id="mine")
    assert statuses(other, above) == ["pending_review"]


def test_a_follower_completes_an_interrupted_refutation_once(bus, page, connect, monkeypatch):
    other = bus.page("other")
    wrong = on(page)
    above = [on(other, wrong) for _ in range(3)]
    monkeypatch.setattr("scratchbus.commands.refute.complete", lambda *_: iter(()))
    page.refute(wrong.id, reason=WHY)
    expirer, events = connect("expirer"), list(bus.events(kinds={"status_changed"}))
    assert expirer.converse(complete_all(expirer.core, events)) == 3
    assert statuses(other, *above) == ["pending_review"] * 3
    assert {event.by for event in reviews(bus)} == {"tester"}
    page_of_one = other.reopen(other.resolve(above[0].id).id)
    late = on(other, page_of_one)
    expirer.converse(complete_all(expirer.core, events))
    assert len(reviews(bus)) == 3
    assert statuses(other, above[0], late) == ["active", "active"]


def test_an_expirer_completes_the_refutations_that_it_reads(
    bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = bus.page("other")
    wrong, right = on(page), on(page)
    above, beside = on(other, wrong), on(other, right)
    monkeypatch.setattr("scratchbus.commands.refute.complete", lambda *_: iter(()))
    page.refute(wrong.id, reason=WHY)
    page.archive(right.id)
    bus.converse(react(bus.core))
    assert statuses(other, above, beside) == ["pending_review", "active"]


def test_later_dependents_stay_active(bus, page):
    wrong = on(page)
    page.refute(wrong.id, reason=WHY)
    later = on(page, wrong)
    (event,) = [event for event in bus.events() if getattr(event, "reason_code", "") == "refuted"]
    assert bus.converse(complete(bus.core, event)) == 0
    assert statuses(page, later) == ["active"]


def test_a_dependent_added_meanwhile_is_in_the_same_batch(page, connect, monkeypatch):
    """A rival adds a dependent after the page is read; the stale batch is refused and built again."""
    wrong = on(page)
    near = on(page, wrong)
    more: list[Observation] = []
    rival = connect("rival", max_observations=1_000).page()
    look = refutation.dependents

    def meddled(*given):
        found = yield from look(*given)
        if len(more) < 2:
            rival.add_many(
                [NewObservation(type="observation", content="x")] * 256
            )  # as many as the script reads at once
            more.append(on(rival, (wrong, near)[len(more)]))
        return found

    monkeypatch.setattr("scratchbus.commands.refute.dependents", meddled)
    page.refute(wrong.id, reason=WHY)
    assert statuses(page, *more) == ["pending_review"] * 2
    assert sorted(page.history(each.id)[-1].batch for each in (wrong, near, *more)) == ["1/4", "2/4", "3/4", "4/4"]


def test_dependents_that_keep_coming_are_reviewed_separately(page, connect, monkeypatch):
    wrong = on(page)
    more: list[Observation] = []
    rival = connect("rival").page()
    look = refutation.dependents

    def meddled(*given):
        found = yield from look(*given)
        more.append(on(rival, wrong))
        return found

    monkeypatch.setattr("scratchbus.commands.refute.dependents", meddled)
    page.refute(wrong.id, reason=WHY)
    assert statuses(page, wrong, *more) == ["archived", *["pending_review"] * len(more)]


def test_unrelated_evidence_does_not_refuse_the_batch(page, connect, monkeypatch):
    """Only a new dependent on the same page makes the batch stale."""
    wrong, looks = on(page), []
    look, rival = refutation.dependents, connect("rival")

    def meddled(*given):
        found = yield from look(*given)
        looks.append(1)
        on(rival.page("other"), wrong)
        on(rival.page(), on(rival.page()))
        return found

    monkeypatch.setattr("scratchbus.commands.refute.dependents", meddled)
    page.refute(wrong.id, reason=WHY)
    assert len(looks) == 1


def test_a_dependent_resolved_meanwhile_stays_resolved(page, connect, monkeypatch):
    wrong = on(page)
    above = on(page, wrong)
    look, rival = refutation.dependents, connect("rival").page()

    def meddled(*given):
        found = yield from look(*given)
        if rival.get(above.id).status == "active":
            rival.resolve(above.id)
        return found

    monkeypatch.setattr("scratchbus.commands.refute.dependents", meddled)
    page.refute(wrong.id, reason=WHY)
    assert statuses(page, wrong, above) == ["archived", "resolved"]


@pytest.mark.parametrize("place", ["main", "other"])
def test_many_dependents_are_reviewed_in_several_batches(connect, place, monkeypatch):
    for module in ("dependents", "refute"):
        monkeypatch.setattr(f"scratchbus.commands.{module}.MAX_BATCH", 50)
    bus = connect(max_observations=200)
    wrong = on(bus.page())
    new = NewObservation(type="observation", content="x", evidence=[wrong.id])
    bus.page(place).add_many([new] * 120)
    bus.page().refute(wrong.id, reason="é" * 2_000)
    assert len(bus.page(place).list(status="pending_review", limit=None)) == 120
    sizes = {int(event.batch.partition("/")[2]) for event in bus.events(kinds={"status_changed"})}
    assert max(sizes) == 50


def test_folded_and_unfolded_dependents_are_reviewed(bus, page):
    wrong = on(page)
    folded = on(page, wrong)
    project(bus)
    late = on(page, folded)
    page.refute(wrong.id, reason=WHY)
    assert statuses(page, folded, late) == ["pending_review"] * 2


@pytest.mark.parametrize("reason", [None, "", " ", 7])
def test_a_refutation_needs_a_reason(page, reason):
    wrong = on(page)
    with pytest.raises(InvalidField, match="reason"):
        page.refute(wrong.id, reason=reason)
    assert statuses(page, wrong) == ["active"]


def test_refuting_an_unknown_observation_raises_not_found(page):
    for event_id in (None, "mine"):
        with pytest.raises(NotFound):
            page.refute(new_id(), reason=WHY, event_id=event_id)


def test_a_refutation_gives_up_when_dependents_keep_changing(page, connect, monkeypatch):
    wrong = on(page)
    above = on(page, wrong)
    look, rival = refutation.dependents, connect("rival").page()

    def meddled(*given):
        found = yield from look(*given)
        rival.update(above.id, status="active" if rival.get(above.id).status == "pending_review" else "pending_review")
        return found

    monkeypatch.setattr("scratchbus.commands.refute.dependents", meddled)
    with pytest.raises(Conflict, match="nothing was written"):
        page.refute(wrong.id, reason=WHY)
    assert statuses(page, wrong) == ["active"]


async def test_an_async_bus_refutes(engine, connect, bus_name):
    page = connect().page()
    wrong = on(page)
    above = on(page, wrong)
    async with AsyncBus.connect(engine.url, bus=bus_name, shards=engine.shards, source="async") as other:
        assert (await other.page().refute(wrong.id, reason=WHY)).reason_code == "refuted"
    assert statuses(page, above) == ["pending_review"]


@pytest.mark.slow
@pytest.mark.damages_the_log
def test_a_dependent_without_its_head_ends_the_retries(bus, page):
    other = bus.page("other")
    wrong = on(page)
    lost, *whole = [on(other, wrong) for _ in range(3)]
    send(bus, "HDEL", keys_of(bus, "other").heads("other"), lost.id)
    with pytest.raises(NotFound, match="the write is in the log") as problem:
        page.refute(wrong.id, reason=WHY, event_id="mine")
    assert problem.value.event_id == "mine"
    assert page.get(wrong.id).reason_code == "refuted"
    assert statuses(other, *whole) == ["pending_review"] * 2
    assert bus.converse(complete_all(bus.core, list(bus.events(kinds={"status_changed"})))) == 0
