"""Dedupe keys: one open observation per key, which counts its repeats."""

from datetime import timedelta

import pytest

from scratchbus import NewObservation
from scratchbus.errors import InvalidField, KeyHeld
from tests.engines import ALL
from tests.inspection import log_length

pytestmark = pytest.mark.engines(*ALL)


def test_repeat_is_counted_and_returns_the_open_observation(page):
    first = page.add("risk_alert", "from 1.2.3.4", dedupe_key="1.2.3.4", times=2)
    again = page.add("risk_alert", "other words", dedupe_key="1.2.3.4", times=3, source="someone-else")
    assert (again.id, again.occurrences, again.version) == (first.id, 5, 2)
    assert (again.content, again.source) == ("from 1.2.3.4", "tester")
    assert [event.kind for event in page.history(first.id)] == ["added", "repeated"]
    assert page.history(first.id)[1].by == "tester"
    assert page.list() == [again]


def test_repeat_restarts_the_ttl(page, clock):
    first = page.add("observation", "x", dedupe_key="k", ttl="1h")
    clock.advance("30m")
    again = page.add("observation", "x", dedupe_key="k", ttl="1h")
    assert again.expires_at == first.expires_at + timedelta(minutes=30)
    clock.advance("45m")
    assert page.get(first.id).status == "active"


def test_repeat_adds_its_evidence(page):
    one, two = page.add("observation", "one").id, page.add("observation", "two").id
    page.add("observation", "x", dedupe_key="k", evidence=[one])
    assert page.add("observation", "x", dedupe_key="k", evidence=[one, two]).evidence == [one, two]


def test_repeat_leaves_a_pending_review_pending(page):
    first = page.add("observation", "x", dedupe_key="k")
    page.review(first.id)
    assert page.add("observation", "x", dedupe_key="k").status == "pending_review"


def test_a_batch_repeats_within_itself(page):
    batch = [NewObservation(type="observation", content=f"{n}", dedupe_key="k") for n in range(3)]
    added = page.add_many(batch)
    assert len({one.id for one in added}) == 1
    assert (page.list()[0].content, page.list()[0].occurrences) == ("0", 3)


@pytest.mark.parametrize("end", ["resolve", "archive"])
def test_closing_frees_the_key(page, end):
    first = page.add("observation", "x", dedupe_key="k")
    getattr(page, end)(first.id)
    assert page.add("observation", "x", dedupe_key="k").id != first.id


def test_expiry_frees_the_key_before_the_sweep(page, clock):
    first = page.add("observation", "x", dedupe_key="k", ttl="1m")
    clock.advance("2m")
    second = page.add("observation", "x", dedupe_key="k")
    assert second.id != first.id
    assert [event.batch for event in page.history(first.id)] == ["1/1", "1/2"]
    assert page.get(first.id).reason_code == "expired"


def test_displacement_frees_the_key(connect):
    page = connect(max_observations=1).page()
    first = page.add("observation", "x", dedupe_key="k")
    page.add("observation", "y")
    assert page.add("observation", "x", dedupe_key="k").id != first.id


def test_reopening_takes_the_key_again(page):
    first = page.add("observation", "x", dedupe_key="k")
    page.resolve(first.id)
    page.reopen(first.id)
    assert page.add("observation", "x", dedupe_key="k").id == first.id


def test_reopening_fails_while_another_holds_the_key(bus, page):
    first = page.add("observation", "x", dedupe_key="k")
    page.resolve(first.id)
    second = page.add("observation", "x", dedupe_key="k")
    before = log_length(bus)
    with pytest.raises(KeyHeld, match="close that one first") as refused:
        page.reopen(first.id)
    assert (refused.value.id, refused.value.key, refused.value.holder) == (first.id, "k", second.id)
    assert log_length(bus) == before
    page.resolve(second.id)
    assert page.reopen(first.id).status == "active"


def test_reopening_takes_the_key_of_an_expired_observation(page, clock):
    first = page.add("observation", "x", dedupe_key="k")
    page.resolve(first.id)
    second = page.add("observation", "x", dedupe_key="k", ttl="1m")
    clock.advance("2m")
    assert page.reopen(first.id).status == "active"
    assert page.get(second.id).reason_code == "expired"


def test_keys_belong_to_a_page(bus):
    assert bus.page("a").add("observation", "x", dedupe_key="k").id != (
        bus.page("a:b").add("observation", "x", dedupe_key="k").id
    )


def test_key_is_any_text_of_1_to_512_bytes(bus, page):
    for key in ("|", "1:2", "a\nb", "é" * 256, "x" * 512, "@#by#%1"):
        first = page.add("observation", "x", dedupe_key=key)
        again = page.add("observation", "x", dedupe_key=key)
        assert (again.id, again.dedupe_key) == (first.id, key)
    before = log_length(bus)
    for key in ("", "x" * 513, "é" * 257):
        with pytest.raises(InvalidField, match="dedupe_key"):
            page.add("observation", "x", dedupe_key=key)
    assert log_length(bus) == before


def test_type_can_derive_the_key(bus, page, tmp_path):
    types = tmp_path / "types.yaml"
    types.write_text("types:\n  login_failed:\n    dedupe: [context.address]\n")
    bus.push_types(types)
    first = page.add("login_failed", "once", context={"address": "1.2.3.4"})
    assert page.add("login_failed", "twice", context={"address": "1.2.3.4"}).id == first.id
    assert page.add("login_failed", "other", context={"address": "5.6.7.8"}).id != first.id
    assert page.add("login_failed", "none").id != page.add("login_failed", "none").id


def test_repeat_with_a_stale_fence_is_refused(page):
    from scratchbus.errors import StaleFence

    first = page.add("observation", "x", dedupe_key="k")
    claim = page.claim(first.id, by="other")
    assert page.add("observation", "x", dedupe_key="k", fence=claim.fence).occurrences == 2
    page.release(first.id, by="other")
    with pytest.raises(StaleFence):
        page.add("observation", "x", dedupe_key="k", fence=claim.fence)
